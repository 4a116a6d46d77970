"""Linear projections of one input: apart as a checkpoint stores them, or fused into one matrix for inference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

_OPERATORS = torch.library.Library("dflash", "FRAGMENT")
_OPERATORS.define(
    "packed_linear(Tensor x, Tensor weight, Tensor? bias, int size) -> Tensor",
    tags=(torch.Tag.flexible_layout, torch.Tag.pt2_compliant_tag),  # a packed weight has no strides to insist on
)

NO_POST_OP: tuple[str, list[float], str] = ("none", [], "")  # oneDNN could apply a function to the result


def packed_linear(x: Tensor, weight: Tensor, bias: Tensor | None, _size: int) -> Tensor:
    """x [..., in] -> [..., size] through oneDNN's packed weight."""
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, *NO_POST_OP)
    return y


def _packed_linear_shape(x: Tensor, _weight: Tensor, _bias: Tensor | None, size: int) -> Tensor:
    return x.new_empty((*x.shape[:-1], size))


# Its own operator for compiled code: the compiler would take oneDNN's apart and copy the weight it cannot read.
for _key in ("CPU", "MkldnnCPU"):
    _OPERATORS.impl("packed_linear", packed_linear, _key)
_OPERATORS.impl("packed_linear", _packed_linear_shape, "Meta")

PACK_ROWS = 8  # oneDNN lays a packed weight out for about this many rows; measured flat from 1 to 16


def can_pack(weight: Tensor) -> bool:
    """Whether oneDNN's prepacked bf16 kernels run this weight: they read it up to twice as fast as `F.linear`."""
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.bfloat16
        and torch.backends.mkldnn.is_available()
        and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )


class QuantisedWeight(Protocol):
    """A matrix [out, in] kept small."""

    has_kernel: bool
    """Whether products are computed with it as it lies; else it is made whole for each."""

    def __call__(self, x: Tensor) -> Tensor:
        """x [..., in] -> [..., out]."""

    def dense(self) -> Tensor:
        """The whole matrix, in the dtype of its activations."""


class Projections:
    """Several `nn.Linear` of the same input, called together: x [..., in] -> one [..., out_i] each.

    Until `fuse()` it calls the modules themselves, so training sees ordinary parameters.
    """

    def __init__(self, *linears: nn.Linear) -> None:
        self.linears = linears
        self.sizes = [linear.out_features for linear in linears]
        self.weight: Tensor | None = None
        self.bias: Tensor | None = None
        self.packed = False
        self.quantised: QuantisedWeight | None = None

    def __call__(self, x: Tensor) -> tuple[Tensor, ...]:
        if self.quantised is not None:
            y = self.quantised(x) if self.bias is None else self.quantised(x) + self.bias
        elif self.weight is None:
            return tuple(linear(x) for linear in self.linears)
        elif self.packed:
            linear = torch.ops.dflash.packed_linear if torch.compiler.is_compiling() else packed_linear
            y = linear(x, self.weight, self.bias, sum(self.sizes))
        else:
            y = F.linear(x, self.weight, self.bias)
        return (y,) if len(self.sizes) == 1 else y.split(self.sizes, -1)

    def fuse(self) -> None:
        """Join the weights row-wise. No second copy stays: unpacked, the modules' own become views of the joint one."""
        weight, self.bias = self.joined(), self._joined_bias()
        self.packed = can_pack(weight)
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, PACK_ROWS) if self.packed else weight
        if self.packed or len(self.linears) == 1:
            return
        for linear, rows in zip(self.linears, weight.split(self.sizes), strict=True):
            linear.weight = nn.Parameter(rows, requires_grad=False)

    def replace(self, quantised: QuantisedWeight) -> None:
        """Compute by `quantised`, made of `joined()`, from now on. The modules' own weights are dropped."""
        self.quantised, self.bias = quantised, self._joined_bias()
        _drop_weights(self.linears)

    def joined(self) -> Tensor:
        """The weights row-wise, [sum of out_i, in]."""
        return _joined([linear.weight.detach() for linear in self.linears])

    def _joined_bias(self) -> Tensor | None:
        biases = [linear.bias.detach() for linear in self.linears if linear.bias is not None]
        return torch.cat(biases) if biases else None


def _joined(weights: Sequence[Tensor]) -> Tensor:
    """weights [out_i, in] -> [sum of out_i, in]; a view where they already lie one after the other."""
    first, place = weights[0], weights[0].storage_offset()
    for weight in weights:
        same = weight.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        if not (same and weight.is_contiguous() and weight.storage_offset() == place):
            return torch.cat(list(weights))
        place += weight.numel()
    return first.as_strided((sum(weight.shape[0] for weight in weights), first.shape[1]), first.stride())


def projections(module: nn.Module) -> Iterator[Projections]:
    """Every Projections held by a module or its children, directly or in a list."""
    for child in module.modules():
        for value in vars(child).values():
            held = value if isinstance(value, list) else [value]
            yield from (item for item in held if isinstance(item, Projections))


def fuse_for_inference(module: nn.Module) -> None:
    """Fuse every group of projections, then drop the plain weights behind packed ones. Training is over after this."""
    # The widest group first: a narrower one of the same modules then is a view into it, not a copy.
    groups = sorted(projections(module), key=lambda group: -len(group.linears))
    for group in groups:
        group.fuse()
    packed = [linear for group in groups if group.packed for linear in group.linears]
    if packed:
        _drop_weights(packed)
        unmap(module)


def _drop_weights(linears: Iterable[nn.Linear]) -> None:
    for linear in linears:
        linear.weight = nn.Parameter(linear.weight.new_empty(0), requires_grad=False)


def unmap(module: nn.Module) -> None:
    """Copy the few tensors left, which would keep the whole mapped checkpoint resident beside its packed copy."""
    for parameter in module.parameters():
        parameter.data = parameter.data.clone()
