"""Weight-only quantisation of a target: int8 by row, int4 by groups of a row; activations and sums stay as they were.

On a CPU torch's packed kernels compute with the small weights as they lie. Elsewhere, and for passes of many rows, a
matrix is made whole for one product: that saves memory, not time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from backends.linears import projections, unmap
from backends.target import Target

GROUP = 32  # inputs that share a scale in int4: divides every usual width, and is what GGUF's 4-bit kinds have
CHUNK = 4096  # rows quantised at a time: bounds the memory that loading takes
LEVELS8, LEVELS4, MIDDLE4 = 127, 15, 8
FEW_ROWS = 8  # up to so many the int8 kernel, which takes longer with every row, is the fastest
MANY_ROWS = 64  # from here on it pays to make the matrix whole
MANY_ROWS_INT4 = 128  # which takes longer there
WIDE_LEVELS = 32000  # of an activation in two digits of 8 bits: finer than bfloat16 beside the row's largest
DIGIT = 256


class Int8Weight:
    """Rows of int8, each with a scale: symmetric, by the largest weight of the row."""

    def __init__(self, weight: Tensor, dtype: torch.dtype, device: torch.device) -> None:
        """weight [out, in], of any float dtype; `dtype` and `device` are those of the activations."""
        rows, scales = zip(*(_int8_rows(part, dtype) for part in weight.split(CHUNK)), strict=True)
        self.rows, self.scale = torch.cat(rows).to(device), torch.cat(scales).to(device)
        self.has_kernel = device.type == "cpu" and _has_int8_kernel(dtype)
        self.has_digits = self.has_kernel and dtype == torch.bfloat16 and _has_exact_sums()

    def __call__(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        y: Tensor = self._kernel(flat)(flat, self.rows, self.scale)
        return y.reshape(*x.shape[:-1], -1)

    def _kernel(self, x: Tensor) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        """The fastest for so many rows. Compiled code has one graph for 1 and one for more, so only these are told
        apart there."""
        if not self.has_kernel:
            return _dense_int8
        if torch.compiler.is_compiling():
            return in_digits if self.has_digits and x.shape[0] != 1 else torch._weight_int8pack_mm
        few = FEW_ROWS if self.has_digits else MANY_ROWS
        if x.shape[0] <= few:
            return torch._weight_int8pack_mm
        return in_digits if x.shape[0] <= MANY_ROWS else _dense_int8

    def dense(self) -> Tensor:
        return self.rows.to(self.scale.dtype) * self.scale.unsqueeze(1)


def _int8_rows(weight: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """weight [n, in] -> int8 rows [n, in] and their scales [n]."""
    weight = weight.float()
    # Rounded first, so that the rows are made for the scale as it is kept; a row of zeros has any.
    scale = (weight.abs().amax(1) / LEVELS8).to(dtype)
    scale = torch.where(scale > 0, scale, 1)
    rows = (weight / scale.float().unsqueeze(1)).round().clamp(-LEVELS8, LEVELS8)
    return rows.to(torch.int8), scale


def _dense_int8(x: Tensor, rows: Tensor, scale: Tensor) -> Tensor:
    """x [n, in] -> [n, out] through a matrix made for this product alone.

    Scaled before the product: sums of the codes as they are do not fit float16.
    """
    return F.linear(x, rows.to(x.dtype).mul_(scale.unsqueeze(1)))


def in_digits(x: Tensor, rows: Tensor, scale: Tensor) -> Tensor:
    """x [n, in] -> [n, out] by the CPU's products of int8, with x in two digits of 8 bits beside each row's largest.

    Sums of integers are exact: what comes out for a row does not depend on the rows beside it.
    """
    unit = x.abs().amax(-1, keepdim=True).float().clamp(min=torch.finfo(torch.float32).tiny) / WIDE_LEVELS
    whole = (x / unit).round()
    high = ((whole + DIGIT // 2) / DIGIT).floor()
    digits = torch.cat((high, whole - high * DIGIT)).to(torch.int8)
    above, below = torch._int_mm(digits, rows.t()).float().chunk(2)
    return above.mul_(DIGIT).add_(below).mul_(unit).mul_(scale).to(x.dtype)


class Int4Weight:
    """Codes of 4 bits: a weight is (code - 8) * scale + zero, with scale and zero by groups of `GROUP` inputs."""

    def __init__(self, weight: Tensor, dtype: torch.dtype, device: torch.device) -> None:
        """weight [out, in], `in` in whole groups; `dtype` and `device` are those of the activations."""
        self.block = _int4_block(dtype) if device.type == "cpu" else 0
        self.has_kernel = self.block > 0
        self.size = weight.shape[0]
        parts = [_int4_rows(part, dtype, self.block) for part in weight.split(CHUNK)]
        self.packed = torch.cat([packed for packed, _ in parts]).to(device)
        self.groups = torch.cat([groups for _, groups in parts], 1).to(device)
        """[in / GROUP, out, 2]: scale and zero, as the kernel wants them."""

    def __call__(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        if self.has_kernel and (torch.compiler.is_compiling() or flat.shape[0] <= MANY_ROWS_INT4):
            y: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(flat, self.packed, GROUP, self.groups)
        else:
            y = F.linear(flat, self.dense())
        return y[:, : self.size].reshape(*x.shape[:-1], -1)

    def dense(self) -> Tensor:
        return _dense_int4(self.packed, self.groups, self.block)[: self.size]


def _int4_rows(weight: Tensor, dtype: torch.dtype, block: int) -> tuple[Tensor, Tensor]:
    """weight [n, in] -> packed codes, and scales and zeros [in / GROUP, n, 2]; n is filled up to whole blocks."""
    weight = F.pad(weight.float(), (0, 0, 0, -weight.shape[0] % (block or 1))).unflatten(1, (-1, GROUP))
    low, high = weight.aminmax(dim=-1, keepdim=True)
    scale = ((high - low) / LEVELS4).to(dtype)
    scale = torch.where(scale > 0, scale, 1)
    zero = (low + MIDDLE4 * scale.float()).to(dtype)
    codes = ((weight - zero.float()) / scale.float()).round().add(MIDDLE4).clamp(0, LEVELS4)
    groups = torch.cat((scale, zero), -1).transpose(0, 1).contiguous()
    return _packed(codes.flatten(1).to(torch.int32), block), groups


def _packed(codes: Tensor, block: int) -> Tensor:
    """codes [n, in] -> bytes, two codes each: for the kernel, or (block 0) in their order."""
    if block:
        packed: Tensor = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 1)
        return packed
    return (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8)


def _unpacked(packed: Tensor, block: int) -> Tensor:
    """What was packed [n, in]. The kernel's layout has blocks of rows, a byte for two rows half a block apart."""
    low, high = packed & 15, packed >> 4
    if not block:
        return torch.stack((low, high), -1).flatten(1)
    columns = 2 * packed.shape[1]
    halves = (half.view(-1, columns, block // 2) for half in (low, high))
    return torch.cat(tuple(halves), -1).transpose(1, 2).reshape(-1, columns)


def _dense_int4(packed: Tensor, groups: Tensor, block: int) -> Tensor:
    scale, zero = groups.transpose(0, 1).unsqueeze(-2).unbind(-1)  # [n, in / GROUP, 1]
    codes = _unpacked(packed, block).to(groups.dtype).unflatten(1, (-1, GROUP))
    return torch.addcmul(zero, codes - MIDDLE4, scale).flatten(1)


def method_of(method: str, columns: int, *, is_head: bool) -> str:
    """How a matrix of so many inputs is kept under `method`: the head, and rows that are no whole groups, in int8."""
    return "int8" if is_head or columns % GROUP else method


def num_bytes(method: str, rows: int, columns: int, dtype_bytes: int, *, is_head: bool = False) -> int:
    """What a matrix takes under `method`, its scales included."""
    if method_of(method, columns, is_head=is_head) == "int8":
        return rows * (columns + dtype_bytes)
    return rows * columns // 2 + 2 * rows * columns // GROUP * dtype_bytes


def quantise(target: Target, method: str, dtype: torch.dtype, device: torch.device) -> None:
    """Keep every projection and the head of a target under `method`, one after the other, each from the weights it has
    now, which are dropped; `dtype` and `device` are those it computes in. The embedding stays as it is."""
    for group in projections(target):
        is_head = group is target.head
        kind = Int8Weight if method_of(method, group.linears[0].in_features, is_head=is_head) == "int8" else Int4Weight
        group.replace(kind(group.joined(), dtype, device))
    unmap(target)
    target.quantize = method


def runs_packed(target: Target) -> bool:
    """Whether a quantised target is computed with as it lies; else a matrix is made whole for each product."""
    return all(group.quantised is None or group.quantised.has_kernel for group in projections(target))


def _probe(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """A matrix [128, 64] and rows [3, 64] that a kernel is tried with."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(128, 64, generator=generator), torch.randn(3, 64, generator=generator).to(dtype)


def _agree(got: Tensor, expected: Tensor) -> bool:
    return bool((got.double() - expected.double()).abs().max() <= expected.abs().max() * 4 * torch.finfo(got.dtype).eps)


@functools.cache
def _has_int8_kernel(dtype: torch.dtype) -> bool:
    """Whether torch's kernel runs here and computes what it should."""
    weight, x = _probe(dtype)
    rows, scale = _int8_rows(weight, dtype)
    try:
        return _agree(torch._weight_int8pack_mm(x, rows, scale), F.linear(x, rows.to(dtype)) * scale)
    except (RuntimeError, NotImplementedError):
        return False


@functools.cache
def _has_exact_sums() -> bool:
    """Whether the CPU has instructions for products of int8; without them their sums are slow, and may overflow."""
    weight, x = _probe(torch.bfloat16)
    rows, scale = _int8_rows(weight, torch.bfloat16)
    try:
        has_them = bool(torch.cpu._is_vnni_supported())
        return has_them and _agree(in_digits(x, rows, scale), F.linear(x, rows.to(x.dtype)) * scale)
    except (RuntimeError, AttributeError):
        return False


@functools.cache
def _int4_block(dtype: torch.dtype) -> int:
    """Rows of a block of the kernel's layout here; 0 where there is no kernel, or it has another layout."""
    weight, x = _probe(dtype)
    codes = torch.arange(weight.numel(), dtype=torch.int32).view(weight.shape) * 7 % 16
    for block in (64, 32):
        try:
            packed, groups = _int4_rows(weight, dtype, block)
            y = torch.ops.aten._weight_int4pack_mm_for_cpu(x, packed, GROUP, groups)
        except (RuntimeError, NotImplementedError, AttributeError):
            return 0
        if torch.equal(_unpacked(_packed(codes, block), block), codes):
            return block if _agree(y, F.linear(x, _dense_int4(packed, groups, block))) else 0
    return 0
