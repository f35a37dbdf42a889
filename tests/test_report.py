"""The report: what it holds, that it is safe to open, and that a browser shows it."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import time
import zlib
from pathlib import Path

import numpy as np
import pytest

from rewardkit.errors import DataError, InvalidArgumentError
from rewardkit.evaluation import Settings
from rewardkit.report import Report, build_report, follow

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HOSTILE = '</script><script>document.title="owned"</script><img src=x onerror="document.title=\'owned\'">&amp;<!--'


def completion(answer: str, confidence: float, think: str = "hm") -> str:
    return f"<think>{think}</think><answer>{answer}</answer><confidence>{confidence}</confidence>"


def rollout_rows(n: int, seed: int = 0) -> list[dict]:
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        confidence = float(rng.choice([0.1, 0.3, 0.5, 0.7, 0.9]))
        right = bool(rng.random() < confidence)
        text = completion("Paris" if right else "Rome", confidence) if i % 10 else "no tags at all"
        rows.append(
            {
                "prompt": f"Question {i}?",
                "completion": text,
                "references": ["Paris"],
                "reward": float(right) if i % 10 else -1.1,
                "method": "a" if i % 2 else "b",
                "brier": 0.25,
            }
        )
    return rows


def write(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def unpack(page: str, name: str):
    data = re.search(rf'id="{name}">([^<]*)<', page)
    assert data
    return json.loads(zlib.decompress(base64.b64decode(data[1])))


def test_holds_every_rollout_with_its_parts(tmp_path: Path) -> None:
    rows = rollout_rows(150)
    written = build_report(
        [write(tmp_path / "r.jsonl", rows)], tmp_path / "r.html", settings=Settings(by=("method",), draws=0)
    )
    assert (written.rollouts, written.shown) == (150, 150)
    page = (tmp_path / "r.html").read_text()
    index = unpack(page, "index")
    assert index["row"] == list(range(1, 151))
    assert set(index["groups"]) == {"a", "b"}
    assert index["statuses"][index["status"][0]] == "unparsed"
    assert index["reward"] == [row["reward"] for row in rows]
    texts = [text for k in range(3) for text in unpack(page, f"texts-{k}")]
    assert [text["completion"] for text in texts] == [row["completion"] for row in rows]
    marked = {role: texts[1]["completion"][start:stop] for start, stop, role in texts[1]["spans"]}
    assert marked["answer"] in ("Paris", "Rome")
    assert float(marked["confidence"]) == index["confidence"][1]
    assert texts[1]["components"]["brier"] == 0.25
    assert texts[0]["reason"]


def test_every_answer_of_a_set_is_marked_whatever_their_number(tmp_path: Path) -> None:
    folder = tmp_path / "steps"
    folder.mkdir()
    for step, number in ((1, 2), (2, 5)):
        pairs = (f"<answer{i}>x{i}</answer{i}><confidence{i}>0.1</confidence{i}>" for i in range(1, number + 1))
        text = f"<think>t</think>{''.join(pairs)}<analysis>a</analysis>"
        write(folder / f"{step}.jsonl", [{"prompt": "q", "completion": text, "references": ["x5"]}])
    build_report([folder], tmp_path / "r.html")
    texts = unpack((tmp_path / "r.html").read_text(), "texts-0")
    assert [text["answer"] for text in texts] == ["x1; x2", "x1; x2; x3; x4; x5"]


def test_summary_is_that_of_evaluate(tmp_path: Path) -> None:
    from rewardkit.evaluation import evaluate

    path = write(tmp_path / "r.jsonl", rollout_rows(400))
    build_report([path], tmp_path / "r.html")
    found = evaluate([path], Settings(draws=0))["files"][0]["groups"]["all"]
    page = (tmp_path / "r.html").read_text()
    for name in ("accuracy", "brier_loss", "ece", "auroc"):
        assert f"{found[name]:.4f}" in page


def test_a_rollout_cannot_escape_into_the_page(tmp_path: Path) -> None:
    rows = [
        {**row, "completion": row["completion"] + HOSTILE, "prompt": HOSTILE, "method": HOSTILE}
        for row in rollout_rows(30)
    ]
    build_report(
        [write(tmp_path / "r.jsonl", rows)],
        tmp_path / "r.html",
        settings=Settings(by=("method",), draws=0),
        title=HOSTILE,
    )
    page = (tmp_path / "r.html").read_text()
    assert "owned" not in re.sub(r"&lt;.*?&gt;|onerror=&#34;.*?&#34;|&#34;owned&#34;|owned&#39;", "", page)
    assert "<img" not in page
    assert page.count("<script") == page.count("</script>") == 3  # the index, one chunk of texts, our own


def test_loads_nothing_and_runs_only_its_own_script(tmp_path: Path) -> None:
    build_report([write(tmp_path / "r.jsonl", rollout_rows(30))], tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "default-src 'none'" in page
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", page)


def test_any_text_is_carried(tmp_path: Path) -> None:
    odd = ["\ud800 lone", "nul \x00 here", "emoji 👩‍👩‍👧 <answer>x</answer>", "", "\u2028\u2029", "a" * 100_000]
    rows = [{"completion": text, "references": "x", "reward": None} for text in odd]
    build_report([write(tmp_path / "r.jsonl", rows)], tmp_path / "r.html")
    texts = unpack((tmp_path / "r.html").read_text(), "texts-0")
    assert [len(text["completion"]) for text in texts] == [len(text) for text in odd]


def test_too_many_rollouts_become_a_sample_that_keeps_the_rare_ones(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [
        {**row, "completion": completion("Paris", 0.5, think=rng.bytes(700).hex()) if i != 777 else "no tags"}
        for i, row in enumerate(rollout_rows(3000))
    ]
    written = build_report([write(tmp_path / "r.jsonl", rows)], tmp_path / "r.html", max_megabytes=3.5)
    assert written.megabytes < 3.5
    assert 300 < written.shown < 3000
    page = (tmp_path / "r.html").read_text()
    assert f"{written.shown:,} of 3,000 rollouts are in this page" in page
    assert 778 in unpack(page, "index")["row"]
    assert "<td>3,000</td>" in page
    again = build_report([tmp_path / "r.jsonl"], tmp_path / "again.html", max_megabytes=3.5)
    assert (tmp_path / "again.html").read_text() == page
    assert again.shown == written.shown


def test_bad_calls_leave_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"r\.jsonl"):
        build_report([write(tmp_path / "r.jsonl", [{"x": 1}])], tmp_path / "r.html")
    with pytest.raises(InvalidArgumentError, match="max_megabytes"):
        build_report([tmp_path / "r.jsonl"], tmp_path / "r.html", max_megabytes=0.1)
    assert not (tmp_path / "r.html").exists()


def test_follows_a_run(tmp_path: Path) -> None:
    """Each report makes the run go on, so that the test depends on no clock."""
    dumps, written, trouble = tmp_path / "dumps", [], []
    dumps.mkdir()

    def dump(step: int, text: str | None = None, *, quiet_for: float = 60.0) -> None:
        path = write(dumps / f"{step}.jsonl", [{**row, "step": step} for row in rollout_rows(40, seed=step)])
        if text is not None:
            path.write_text(text)
        os.utime(path, (time.time() - quiet_for,) * 2)

    def after_report(report: Report) -> None:
        written.append(report)
        if len(written) == 1:
            dump(11, '{"completion": "half a li')

    def after_trouble(line: str) -> None:
        trouble.append(line)
        dump(11)

    for step in (1, 2, 10):
        dump(step)
    follow(dumps, tmp_path / "r.html", interval=0.01, rounds=6, on_report=after_report, on_trouble=after_trouble)
    assert [report.rollouts for report in written] == [120, 160]
    assert len(trouble) == 1
    assert "11.jsonl" in trouble[0]
    assert 'id="curve"' in (tmp_path / "r.html").read_text()
    dump(12, quiet_for=-60.0)  # somebody is writing it at this moment
    follow(dumps, tmp_path / "r.html", interval=0.01, rounds=2, on_report=written.append)
    assert len(written) == 2


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_in_a_real_browser(tmp_path: Path) -> None:
    sync = pytest.importorskip("playwright.sync_api")
    rows = [{**row, "completion": row["completion"] + HOSTILE} for row in rollout_rows(120)]
    build_report([write(tmp_path / "r.jsonl", rows)], tmp_path / "r.html", settings=Settings(by=("method",), draws=0))
    with sync.sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-quic"], timeout=120_000
        )
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        page.set_default_timeout(120_000)
        sync.expect.set_options(timeout=120_000)
        count = page.locator("#count")  # awaited without wait_for_function, which the page's own policy forbids
        troubles, requests = [], []
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: requests.append(request.url))
        page.goto((tmp_path / "r.html").as_uri())
        page.wait_for_selector("body[data-ready=yes]")
        assert page.title() == "Rollouts"
        assert page.locator("#rows tbody tr").count() == 25
        assert "120 of 120" in page.inner_text("#count")
        page.click("#next")
        assert "page 2 of 5" in page.inner_text("#page")
        page.select_option("#f-status", label="unparsed")
        sync.expect(count).to_have_text("12 of 120 rollouts")
        page.click("#clear")
        page.fill("#f-confidence-min", "0.8")
        page.press("#f-confidence-min", "Tab")
        sync.expect(count).not_to_have_text("120 of 120 rollouts")
        stated = [float(text) for text in page.locator("#rows tbody tr td:nth-child(5)").all_inner_texts()]
        assert stated
        assert min(stated) >= 0.8
        page.locator("#rows tbody tr").first.click()
        assert page.locator("#detail mark.answer").inner_text() in ("Paris", "Rome")
        assert "brier" in page.inner_text("#detail table")
        assert "owned" in page.inner_text("#detail")  # as text, where it belongs
        page.reload()
        page.wait_for_selector("body[data-ready=yes]")
        assert page.input_value("#f-confidence-min") == "0.8"
        page.click("#clear")
        page.fill("#f-text", "question 7?")
        page.press("#f-text", "Tab")
        sync.expect(count).to_have_text("1 of 120 rollouts")
        assert page.title() == "Rollouts"
        assert page.screenshot(full_page=True)[:4] == b"\x89PNG"
        assert not troubles
        assert {url.split(":")[0] for url in requests} <= {"file"}
        browser.close()


def test_a_directory_that_is_not_there_yet_is_waited_for_and_told_once(tmp_path: Path) -> None:
    told: list[str] = []
    follow(tmp_path / "dumps", tmp_path / "x.html", interval=0.01, rounds=3, on_trouble=told.append)
    assert told == [f"{tmp_path / 'dumps'}: no such directory; waiting for it"]
