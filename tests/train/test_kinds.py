"""The two drafters that DFlash is compared with: trained as they draft, and learned by heart through the decoder."""

from __future__ import annotations

import json
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from backends.config import DFlashConfig, EagleConfig
from backends.drafter import Drafter
from backends.weights import load_drafter
from dflash_cli.errors import DFlashError, UsageError
from dflash_cli.request import Request
from dflash_cli.speculative import Decoder
from dflash_cli.train.blocks import Row, make_row
from dflash_cli.train.corpus import Wanted, answers
from dflash_cli.train.documents import Document
from dflash_cli.train.evaluate import inference_copy, measure
from dflash_cli.train.features import FeatureReader, Features, joined
from dflash_cli.train.forward import TrainingForward
from dflash_cli.train.learner import Learner
from dflash_cli.train.recipe import make_recipe
from dflash_cli.train.shape import config_dict, drafter_shape, eagle_dict, make_drafter
from tests import tiny
from tests.tiny import MASK_ID, NO_CONTEXT, make_eagle, make_engine, make_target
from tests.train.lessons import RECIPE, documents, make_model, plain_target, weights
from tests.train.test_forward import BLOCK, changed, everywhere

KINDS: dict[str, Drafter] = {"eagle3": make_eagle(seed=4), "no-context": tiny.make_drafter(seed=4, **NO_CONTEXT)}
TARGET = make_target(seed=3)
STEPS = 40


def features_of(drafter: Drafter, docs: list[Document]) -> list[Features]:
    return FeatureReader(TARGET, drafter.config.target_layer_ids, 64).read(docs)


def row_of(drafter: Drafter, docs: list[Document], anchors: list[torch.Tensor]) -> Row:
    return make_row(docs, anchors, BLOCK, None if isinstance(drafter.config, EagleConfig) else MASK_ID)


def slots(drafter: Drafter, row: Row, features: list[Features]) -> torch.Tensor:
    """Logits [A, b - 1, V] of a row."""
    return TrainingForward(drafter, TARGET, 64)(row, joined(features).taps) @ TARGET.head_weight().T


@torch.no_grad()
def test_without_context_a_packed_row_equals_the_drafts_of_the_engine() -> None:
    drafter, docs = KINDS["no-context"], documents()
    anchors = everywhere(docs)
    row = row_of(drafter, docs, anchors)
    packed = slots(drafter, row, features_of(drafter, docs))
    engine = make_engine(TARGET, drafter, max_len=64)
    for at, (anchor, place) in enumerate(zip(row.inputs[:, 0], row.anchors.tolist(), strict=True)):
        torch.testing.assert_close(packed[at], engine.draft(anchor[None], [place])[0], atol=1e-5, rtol=1e-5)
    assert len(packed) > 30


@torch.no_grad()
def test_an_unrolled_row_equals_the_chains_of_the_engine() -> None:
    """Where the engine drafts a token, training that token computes the same next one, and so on."""
    drafter, docs = KINDS["eagle3"], documents()
    anchors = everywhere(docs)
    row = row_of(drafter, docs, anchors)
    features = features_of(drafter, docs)
    chains = row.inputs.clone()
    engine, at = make_engine(TARGET, drafter, max_len=64), 0
    wanted = []
    for document, places in zip(docs, anchors, strict=True):
        ids = torch.tensor(document.ids, dtype=torch.long)
        for place in places.tolist():
            engine.prefill(ids[:place], 0)
            wanted.append(engine.draft(ids[place : place + 1], [place])[0].clone())
            chains[at, 1:] = wanted[-1].argmax(-1)
            at += 1
    torch.testing.assert_close(
        slots(drafter, replace(row, inputs=chains), features), torch.stack(wanted), atol=1e-4, rtol=1e-4
    )
    assert at > 30


def test_a_chain_reads_the_tokens_that_were_right() -> None:
    row = row_of(KINDS["eagle3"], documents(2), everywhere(documents(2)))
    assert torch.equal(row.inputs[:, 1:], row.labels)


@pytest.mark.parametrize("kind", KINDS)
def test_packed_equals_apart(kind: str) -> None:
    drafter, docs = KINDS[kind], documents()
    anchors, features = everywhere(docs), features_of(drafter, docs)
    together = slots(drafter, row_of(drafter, docs, anchors), features)
    apart = [
        slots(drafter, row_of(drafter, [document], [places]), [each])
        for document, places, each in zip(docs, anchors, features, strict=True)
    ]
    torch.testing.assert_close(together, torch.cat(apart), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_only_features_before_the_anchor_count(offset: int) -> None:
    drafter, docs = KINDS["eagle3"], documents(3)
    anchors = [torch.tensor([document.start + 1, document.start + 4]) for document in docs]
    features, row = features_of(drafter, docs), row_of(drafter, docs, anchors)
    before = slots(drafter, row, features)
    taps = features[1].taps.clone()
    taps[docs[1].start + 4 + offset :] += 1.0
    after = slots(drafter, row, [features[0], Features(taps, None), features[2]])
    assert changed(before, after) == ([3] if offset < 0 else [])


def test_a_later_token_is_seen_only_after_it_was_drafted() -> None:
    drafter, docs = KINDS["eagle3"], documents(2)
    row = row_of(drafter, docs, [torch.tensor([docs[0].start]), torch.tensor([docs[1].start])])
    features = features_of(drafter, docs)
    before = slots(drafter, row, features)
    inputs = row.inputs.clone()
    inputs[1, 3] = (inputs[1, 3] + 1) % 250
    after = slots(drafter, replace(row, inputs=inputs), features)
    assert changed(before, after) == [1]
    assert [torch.equal(before[1, slot], after[1, slot]) for slot in range(5)] == [True] * 3 + [False] * 2


def test_without_context_no_feature_and_no_other_text_changes_anything() -> None:
    drafter, docs = KINDS["no-context"], documents(3)
    anchors = [torch.tensor([document.start + 2]) for document in docs]
    row = row_of(drafter, docs, anchors)
    before = slots(drafter, row, features_of(drafter, docs))
    noise = [Features(torch.randn(len(document.ids), 64), None) for document in docs]
    assert torch.equal(slots(drafter, row, noise), before)
    ids = docs[1].ids[:]
    for place in [*range(docs[1].start + 2), *range(docs[1].start + 3, len(ids))]:
        ids[place] = (ids[place] + 1) % 250
    other = [docs[0], replace(docs[1], ids=ids), docs[2]]
    assert torch.equal(slots(drafter, row_of(drafter, other, anchors), features_of(drafter, other)), before)


def test_without_context_the_target_is_not_even_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(TARGET), "forward", None)
    read = features_of(KINDS["no-context"], documents(2))
    assert [each.taps.shape for each in read] == [(len(document.ids), 0) for document in documents(2)]


RECIPES: dict[str, dict[str, Any]] = {
    "eagle3": {"arch": "eagle3", "taps": None, "layers": None},
    "no-context": {"no_context": True, "taps": None},
}


@pytest.mark.parametrize("kind", RECIPES)
def test_what_is_learned_by_heart_is_drafted_through_the_decoder(kind: str, tmp_path: Path) -> None:
    """A few documents until they are foreseen; and what is said with and without the drafter is the same."""
    model = make_model(tmp_path, plain_target())
    prompts = [model.encode(model.conversation(text)) for text in ("hello", "what is this", "a b c")]
    said = answers(model, [Wanted((), prompt, "s") for prompt in prompts], replace(RECIPE, answer_tokens=24))
    docs = [Document(array("i", [*each.prompt_ids, *ids]), len(each.prompt_ids), "s") for each, ids, _ in said]
    recipe = replace(RECIPE, anchors=24, lr=6e-3, **RECIPES[kind])
    raw, _ = drafter_shape(recipe, model, docs)
    drafter = make_drafter(recipe, raw, model.target, tmp_path)
    learner = Learner(recipe, drafter, model, max(len(each.ids) for each in docs), STEPS)
    read = FeatureReader(model.target, drafter.config.target_layer_ids, 256).read(docs)

    def tau() -> float:
        copy = inference_copy(weights(drafter), drafter, torch.float32)
        measured = measure(model, copy, docs, 23, by_heart=True)
        assert measured is not None
        return measured.all.tau

    first = tau()
    for step in range(STEPS):
        learner.learn(learner.rows([(step, i, each) for i, each in enumerate(docs)]), read, step)
    copy = inference_copy(weights(drafter), drafter, torch.float32)
    assert tau() > first + 1.5
    request = Request(prompts[0], max_new_tokens=23)
    texts = [
        [
            token
            for event in Decoder(make_engine(model.target, each)).generate(request)
            for token in getattr(event, "new_ids", ())
        ]
        for each in (copy, None)
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("kind", RECIPES)
def test_what_is_written_is_loaded_by_its_kind(kind: str, tmp_path: Path) -> None:
    recipe = replace(RECIPE, **RECIPES[kind])
    config = TARGET.config
    raw = eagle_dict(recipe, config) if kind == "eagle3" else config_dict(recipe, config, MASK_ID)
    drafter = make_drafter(recipe, raw, TARGET, tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(raw))
    save_file(weights(drafter), tmp_path / "model.safetensors")
    loaded = load_drafter(tmp_path, torch.float32, torch.device("cpu"))
    assert type(loaded) is type(drafter)
    assert loaded.config == drafter.config
    assert isinstance(loaded.config, EagleConfig if kind == "eagle3" else DFlashConfig)
    assert weights(loaded).keys() == weights(drafter).keys()


def test_the_autoregressive_drafter_reads_a_low_a_middle_and_a_high_layer() -> None:
    target = replace(TARGET.config, num_layers=30)
    raw = eagle_dict(replace(RECIPE, taps=None), target)
    assert raw["eagle3_config"]["target_layer_ids"] == [1, 14, 27]
    assert raw["num_hidden_layers"] == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"arch": "eagle3", "no_context": True}, "--no-context does not go with --arch eagle3"),
        ({"arch": "eagle3", "layers": 2}, "--layers does not go"),
        ({"arch": "eagle3", "init": "target"}, "--init does not go"),
        ({"arch": "eagle3", "masking": "random"}, "--masking does not go"),
        ({"no_context": True, "taps": (1, 2)}, "--taps does not go with --no-context"),
        ({"no_context": True, "warm_start": "x"}, "--no-context does not go with --warm-start"),
        ({"arch": "eagle3", "warm_start": "x"}, "--arch does not go with --warm-start"),
    ],
)
def test_choices_that_a_kind_does_not_have_are_errors(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make_recipe(None, {"prompts": ("p",), **given})


def test_an_unknown_kind_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text('prompts = ["p"]\narch = "medusa"\n')
    with pytest.raises(DFlashError, match="medusa"):
        make_recipe(str(file), {})
