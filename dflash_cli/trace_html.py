"""A trace as one page that needs no other file: text in colours, a block's drafts on hover, a slider to step through.

Without scripts the page shows the whole answer; its script only hides what is not there yet. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from dflash_cli.events import BlockDrafted, BlockVerified, Finished, Prefilled
from dflash_cli.replay import stats_of, thinking_flags
from dflash_cli.stats_store.output_file import check_name, write_file
from dflash_cli.stats_store.report import page, text
from dflash_cli.trace import Recording

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 1.5rem auto; max-width: 60rem; padding: 0 1rem; color: #222;
  background: #fff; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; font: 15px/1.7 ui-monospace, monospace; padding: 1rem;
  border: 1px solid #bbb; border-radius: 6px; position: relative; }
.prompt { white-space: pre-wrap; overflow-wrap: anywhere; border-left: 3px solid #bbb; padding-left: .8rem; }
.accepted { color: #0060a8; } .bonus { color: #a85800; font-weight: bold; } .plain { color: inherit; }
.rejected { color: #b00020; text-decoration: line-through; display: none; }
.thinking { font-style: italic; opacity: .75; }
.block.future { display: none; }
.block:hover, .block:focus { outline: 1px solid #888; background: #f2f2f2; }
.block.newest .rejected { display: inline; }
.drafts { display: none; position: absolute; left: 1rem; right: 1rem; margin-top: .2em; z-index: 1;
  background: #fff; color: #222; border: 1px solid #888; border-radius: 4px; padding: .3rem .6rem;
  font: 13px/1.5 ui-monospace, monospace;
  font-style: normal; font-weight: normal; white-space: pre-wrap; }
.block:hover > .drafts, .block:focus > .drafts { display: block; }
.drafts .rejected { display: inline; }
.controls { display: flex; gap: 1rem; align-items: center; } .controls input { flex: 1; }
.legend span { margin-right: 1rem; } .legend .rejected { display: inline; }
@media (prefers-color-scheme: dark) { body, .drafts { background: #111; color: #ddd; }
  .accepted { color: #66b8f0; } .bonus { color: #f0a850; } .rejected { color: #ff6b81; }
  .block:hover, .block:focus { background: #222; } }
"""
SCRIPT = """
for (const answer of document.querySelectorAll("section")) {
  const blocks = [...answer.querySelectorAll(".block")];
  const slider = answer.querySelector("input"), told = answer.querySelector("output");
  const show = () => {
    const step = Number(slider.value), last = step === blocks.length;
    blocks.forEach((block, index) => {
      block.classList.toggle("future", index >= step);
      block.classList.toggle("newest", index === step - 1 && !last);
    });
    const at = step ? blocks[step - 1].dataset.at : "0.000";
    told.textContent = `${step} of ${blocks.length}, ${at} s`;
  };
  slider.addEventListener("input", show);
  answer.querySelector(".controls").hidden = false;
  show();
}
"""
LEGEND = (
    '<p class="legend"><span class="accepted">accepted draft</span><span class="bonus">bonus, the target\'s own</span>'
    '<span class="rejected">rejected draft</span>Hover over a block to see its drafts.</p>'
)


def write_page(recordings: Sequence[Recording], path: Path) -> Path:
    """Write the page of these answers. Raises DFlashError: a name that is not .html, a file that cannot be written."""
    check_name(path, ".html", ".htm")
    write_file(path, render(recordings).encode("utf-8"))
    return path


def render(recordings: Sequence[Recording]) -> str:
    """The page."""
    answers = "\n".join(_answer(each) for each in recordings)
    title = f"{recordings[0].head.pair}: an answer block by block" if recordings else "no answer"
    return page(title, STYLE, f"{LEGEND}\n{answers}\n<script>{SCRIPT}</script>", policy=POLICY)


def _answer(recording: Recording) -> str:
    head, blocks = recording.head, list(_blocks(recording))
    facts = ", ".join(each for each in (head.target, head.drafter or "no drafter", head.backend, head.device,
                                        head.dtype, head.time) if each)  # fmt: skip
    prompt = "" if head.prompt is None else f'<p class="prompt">{text(head.prompt)}</p>'
    count = len(blocks)
    return (
        f"<section><h2>{text(head.pair)}</h2><p>{text(facts)}<br>{text(stats_of(recording).summary())}</p>{prompt}"
        f'<p class="controls" hidden><label>step</label>'
        f'<input type="range" min="0" max="{count}" value="{count}" aria-label="step"><output></output></p>'
        f'<div class="text">{"".join(blocks)}</div></section>'
    )


def _blocks(recording: Recording) -> Iterator[str]:
    """The markup of the prefill's token, of each verify pass, and of what the end let go."""
    drafts: tuple[str, ...] = ()
    for step, flags in zip(recording.steps, thinking_flags(recording.steps), strict=True):
        event = step.event
        if isinstance(event, BlockDrafted):
            drafts = step.texts
        elif isinstance(event, BlockVerified):
            own = "bonus" if event.num_drafted else "plain"
            kinds = ["accepted" if place < event.accepted else own for place in range(len(step.texts))]
            yield _block(step.at_s, _tokens(step.texts, kinds, flags, drafts, event), _drafts(drafts, event))
            drafts = ()
        elif isinstance(event, Prefilled):
            yield _block(
                step.at_s, _tokens(step.texts, ["plain"] * len(step.texts), flags), "first token, by the prefill"
            )
        elif isinstance(event, Finished) and any(step.texts):
            yield _block(step.at_s, _tokens(step.texts, ["plain"], (False,)), "held back until the end")


def _block(at_s: float, body: str, told: str) -> str:
    return f'<span class="block" tabindex="0" data-at="{at_s:.3f}">{body}<span class="drafts">{told}</span></span>'


def _tokens(
    texts: Sequence[str], kinds: Sequence[str], flags: Sequence[bool], drafts: Sequence[str] = (),
    event: BlockVerified | None = None,
) -> str:  # fmt: skip
    """The committed tokens; the drafts that were rejected stand, hidden, before the bonus."""
    marked = [
        f'<span class="{kind}{" thinking" * thinking}">{text(each)}</span>'
        for each, kind, thinking in zip(texts, kinds, flags, strict=True)
        if each
    ]
    if event is None:
        return "".join(marked)
    # On one line: what was never said must not move what was.
    rejected = "".join(map(_one_line, drafts[event.accepted : event.num_drafted]))
    kept = sum(bool(each) for each in texts[: event.accepted])
    lost = [f'<span class="rejected">{text(rejected)}</span>'] if rejected else []
    return "".join([*marked[:kept], *lost, *marked[kept:]])


def _drafts(drafts: Sequence[str], event: BlockVerified) -> str:
    """What shows on hover: each draft and what became of it."""
    times = f"draft {event.draft_ms:.1f} ms, verify {event.verify_ms:.1f} ms"
    if not event.num_drafted:
        return text(f"{'no draft verified' if event.has_draft else 'plain step'}; {times}")
    marked = []
    for place, draft in enumerate(drafts):
        kind = "accepted" if place < event.accepted else "rejected" if place < event.num_drafted else "plain"
        marked.append(f'<span class="{kind}">{text(_one_line(draft) or "·")}</span>')
    told = text(f"{event.accepted} of {event.num_drafted} drafts kept, {len(event.new_ids)} committed; {times}")
    return f"{told}\n{'|'.join(marked)}"


def _one_line(draft: str) -> str:
    """A draft on one line; "" for one that is only part of a character."""
    return draft.replace("\r\n", "\n").replace("\n", "↵").replace("\t", "⇥")
