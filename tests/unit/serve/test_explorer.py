"""The explorer in a headless Chromium, as a person uses it, on random models; nothing leaves the machine."""

from __future__ import annotations

import csv
import io
import json
import re
from importlib import import_module
from pathlib import Path

import pytest

import syntaxformer
from browser import DESKTOP, PHONE, chromium, needs_chromium, pages, served
from browser import wait_for_answers as _ready
from syntaxformer.base.languages import BUNDLED
from syntaxformer.serve import ServiceConfig, create_app
from syntaxformer.syntax import FACTORS, MAX_DISTANCE, n_relations, relation_name
from syntaxformer.syntax.pieces import SUBWORD_POSITIONS

expect = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install playwright"
).expect
pytestmark = [needs_chromium, pytest.mark.slow]

TEXT = "The cat sees a small dog ."


@pytest.fixture(scope="module")
def address(tiny_engines):
    with served(create_app(ServiceConfig(models=dict.fromkeys(tiny_engines, ".")), tiny_engines)) as url:
        yield url


@pytest.fixture(scope="module")
def browser():
    with chromium() as one:
        yield one


@pytest.fixture
def open_page(browser, address):
    with pages(browser, address) as make:
        yield make


def _ask(page, text=TEXT):
    page.get_by_label("Text", exact=True).fill(text)
    page.get_by_role("button", name="Look inside").click()
    _ready(page)


def _tab(page, name):
    page.get_by_role("tab", name=name).click()
    return page.locator("#view")


def _slide(page, label, key, times=1):
    slider = page.get_by_role("slider", name=label)
    slider.focus()
    for _ in range(times):
        slider.press(key)


@pytest.mark.parametrize("window", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_a_walk_through_all_views(open_page, tiny_engines, window):
    page = open_page(window)
    _ask(page)
    cards = page.locator("#answers article")
    assert [card.locator("h2").inner_text() for card in cards.all()] == ["sit", "base"]
    for card, name in zip(cards.all(), ("sit", "base"), strict=True):
        ((best,),) = tiny_engines[name].translator.translate([TEXT])
        assert card.locator(".output").text_content().split() == best.text.split()
    view = _tab(page, "Words")
    assert view.locator(".words .word").all_inner_texts() == TEXT.split()
    assert view.locator(".words .tag").all_inner_texts()[:2] == ["DET", "NOUN"]
    assert view.locator("h3").all_inner_texts() == ["sit and base"]  # one parser: one panel
    view = _tab(page, "Pieces")
    assert view.locator("thead").first.inner_text().split() == ["Piece", "Word", "pos", "case", "subword"]
    view = _tab(page, "Dependencies")
    assert view.locator(".arc").count() == len(TEXT.split())
    assert view.locator("svg").get_attribute("aria-label").startswith("Dependency tree: The is det of cat, ")
    view = _tab(page, "Phrases")
    assert view.locator("svg .phrase").first.text_content() == "S"
    assert view.locator("svg .word").all_text_contents() == TEXT.split()
    # These translators have no sub-networks, and therefore no tab for them.
    names = ["Words", "Pieces", "Attention", "Dependencies", "Phrases", "Relations"]
    assert page.get_by_role("tab").all_inner_texts() == names
    # The page itself never scrolls sideways: what is wide scrolls in its own box.
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("window", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_sliders_and_permalinks(open_page, window):
    page = open_page(window, f"/explore?text={TEXT.replace(' ', '+')}&a=sit&b=base&view=attention")
    _ready(page)
    captions = page.locator("#view figcaption")
    assert [one.split(";")[0] for one in captions.all_inner_texts()] == [
        "translation → source, layer 2, mean of 2 heads", "translation → source, layer 0, mean of 2 heads",
    ]  # fmt: skip
    _slide(page, "Layer", "ArrowLeft")
    expect(captions.first).to_contain_text("layer 1")
    page.get_by_role("combobox", name="Head").select_option("1")
    expect(captions.first).to_contain_text("head 1")
    _ready(page)
    box = page.locator("#view [role=group]").first
    box.focus()
    box.press("ArrowDown")
    box.press("ArrowDown")
    assert "→ The: " in page.locator("#view output").first.inner_text()
    view = _tab(page, "Relations")
    many = view.locator(".matrix .cell").count()
    _slide(page, "Distance", "Home")
    page.wait_for_url("**distance=1*")
    few = view.locator(".matrix .cell").count()
    assert 0 < few < many
    assert few == 2 * (len(TEXT.split()) - 1)  # each edge of the tree, in both directions
    page.get_by_role("combobox", name="Tree").select_option("constituency")
    page.wait_for_url("**tree=constituency*")
    link = page.url
    for part in ("a=sit", "b=base", "view=relations", "layer=1", "head=1", "distance=1", "tree=constituency"):
        assert part in link
    shown = page.locator("#view").inner_html()
    again = open_page(window, link[link.index("/", 8) :])
    _ready(again)
    assert again.locator("#view").inner_html() == shown
    assert again.get_by_label("Text", exact=True).input_value() == TEXT


@pytest.mark.parametrize("when", ["typed", "asked"])
def test_what_is_typed_or_asked_before_the_models_are_known_is_not_lost(open_page, when):
    page = open_page()
    waiting = []
    page.route("**/v1/models", lambda route: waiting.append(route))
    page.reload()
    page.get_by_label("Text", exact=True).fill(TEXT)
    if when == "asked":
        page.get_by_role("button", name="Look inside").click()
    while not waiting:
        page.wait_for_timeout(20)
    waiting[0].continue_()
    if when == "typed":
        page.wait_for_selector("#a option", state="attached")
        page.get_by_role("button", name="Look inside").click()
    _ready(page)
    assert page.locator("#answers article h2").all_inner_texts() == ["sit", "base"]
    assert page.get_by_label("Text", exact=True).input_value() == TEXT


def test_switching_models_and_csv(open_page):
    page = open_page()
    _ask(page)
    page.get_by_label("Model", exact=True).select_option("masked")
    page.wait_for_selector("article[aria-label=masked] .bars")
    page.get_by_label("Beside it").select_option("tagged-pairs")
    page.wait_for_selector("article[aria-label=tagged-pairs] .error")
    page.get_by_label("Second text").fill('=A dog, "big" .')
    page.get_by_role("button", name="Look inside").click()
    page.wait_for_selector("article[aria-label=tagged-pairs] .bars")
    view = _tab(page, "Sub-networks")
    network = view.locator("tbody button").first
    name = network.inner_text()
    network.click()
    expect(page.locator("#view figcaption").first).to_contain_text(f"{name}, layer 2, mean of 2 heads")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export as CSV").click()
    content = download.value.path().read_text("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(content)))
    assert {row["model"] for row in rows} == {"sit", "base", "masked", "tagged-pairs"}
    pair = next(row for row in rows if row["model"] == "tagged-pairs")
    assert (pair["text"], pair["second_text"]) == (TEXT, '\'=A dog, "big" .')
    assert pair["result"] in ("bad", "good")
    page.reload()
    _ready(page)
    assert page.locator("#history tbody tr").count() == len(rows)
    page.get_by_role("button", name="Clear").click()
    assert page.locator("#history tbody tr").count() == 0


def test_by_keyboard_alone(open_page):
    page = open_page()
    page.get_by_label("Text", exact=True).focus()
    page.keyboard.type(TEXT)
    page.keyboard.press("Enter")
    _ready(page)
    page.locator("[role=tab][aria-selected=true]").focus()
    for expected in ("Pieces", "Attention"):
        page.keyboard.press("ArrowRight")
        assert page.evaluate("document.activeElement.textContent") == expected
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.textContent") == "Relations"
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    unnamed = page.evaluate(
        "[...document.querySelectorAll('button, select, textarea, input')].filter((one) => "
        "!(one.labels?.length || one.textContent.trim() || one.ariaLabel)).length"
    )
    assert unnamed == 0


def test_a_key_is_asked_for(open_page, browser, tiny_engines):
    app = create_app(ServiceConfig(models={"bare": "."}, api_key="secret"), {"bare": tiny_engines["bare"]})
    with served(app) as url:
        page = browser.new_page()
        page.goto(f"{url}/?text=The+cat")
        page.get_by_label("Key of this service").fill("secret")
        page.get_by_role("button", name="Use it").click()
        page.wait_for_selector("article[aria-label=bare] .bars")
        assert not page.get_by_label("Key of this service").is_visible()
        page.close()


def test_the_policy_allows_this_server_only(open_page, address):
    from urllib.request import urlopen

    for path in ("/", "/explore", "/explore/static/app.js"):
        with urlopen(address + path) as response:
            policy = response.headers["Content-Security-Policy"]
            assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
            assert "unsafe" not in policy
            assert response.headers["X-Content-Type-Options"] == "nosniff"


def _at(view, text=TEXT, a="sit", b=""):
    return f"/?text={text.replace(' ', '+')}&a={a}&view={view}" + (f"&b={b}" if b else "")


def _tabs(page):
    return page.get_by_role("tab").all_inner_texts()


def test_it_starts_with_a_sentence_and_three_examples(open_page):
    page = open_page()
    expect(page.locator("#lead")).to_contain_text("See how a model translates: the words and their grammar")
    assert page.locator("#lead").inner_text().count(".") == 1
    examples = page.locator("#start a.example")
    expect(examples).to_have_count(3)
    assert not page.locator(".history").is_visible()  # nothing was asked: no empty table
    page.get_by_label("Model", exact=True).select_option("tagged-pairs")
    expect(page.locator("#lead")).to_contain_text("compares two texts")
    assert examples.first.locator(".quote").count() == 2
    examples.first.click()
    _ready(page)
    assert page.locator("article[aria-label=tagged-pairs] .bars dt").count() == 2
    assert page.get_by_label("Second text").input_value() == "Animals are outside."
    assert not page.locator("#start, #lead").first.is_visible()
    assert page.get_by_role("tab", selected=True).inner_text() == "Attention"


def _missing(page, kind, names):
    """The names for which the page has no words."""
    look = "async ([kind, names]) => { const { inWords } = await import('/explore/static/glossary.js'); return names.filter((one) => !inWords(kind, one)); }"
    return page.evaluate(look, [kind, sorted(names)])


def _parser_labels():
    home = Path(syntaxformer.__file__).parent / "annotate" / "pipelines"
    metas = [json.loads((home / name / "meta.json").read_text("utf-8")) for name in BUNDLED]
    return {label for meta in metas for label in meta["labels"]["parser"]}


def test_every_label_has_words(open_page):
    page = open_page()
    assert _missing(page, "tag", FACTORS["pos"].values) == []
    assert _missing(page, "place", SUBWORD_POSITIONS) == []
    assert _missing(page, "factor", FACTORS) == []
    assert _missing(page, "relation", _parser_labels()) == []
    phrase_structure = import_module("syntaxformer.trees.phrase_structure")
    source = Path(phrase_structure.__file__).read_text("utf-8")
    phrases = {*phrase_structure._OF_TAG.values(), *phrase_structure._WH_LABELS.values()}
    phrases |= set(re.findall(r'"((?:S|SBAR|SBARQ|VP|NP|QP|PRN|PRT|FRAG|UCP|X))"', source))
    assert len(phrases) > 12
    assert _missing(page, "phrase", phrases) == []
    kinds = [relation_name(one) for one in range(1, n_relations(MAX_DISTANCE))]
    assert _missing(page, "kind", kinds) == []
    networks = [f"{tree} {kind}" for tree in ("dependency", "constituency") for kind in kinds[:-1]]
    assert _missing(page, "network", [*networks, "full"]) == []
    values = "async ([factor, names]) => { const { valueInWords } = await import('/explore/static/glossary.js'); return names.filter((one) => !valueInWords(factor, one)); }"
    for name, factor in FACTORS.items():
        assert page.evaluate(values, [name, list(factor.values or ())]) == [], name


def test_tips_by_mouse_finger_and_list(open_page):
    page = open_page(path=_at("words"))
    _ready(page)
    tip = page.locator("#tip")
    page.locator(".words .tag").first.hover()
    expect(tip).to_have_text("DET: determiner, such as “the” or “this”")
    page.locator(".words .relation").nth(1).hover()
    expect(tip).to_have_text("nsubj of sees: subject")
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()
    page.get_by_role("tab", name="Dependencies").click()
    page.locator("#view svg .arc:not(.root) text").first.hover()
    expect(tip).to_have_text("det: determiner")
    page.get_by_role("tab", name="Phrases").click()
    page.locator("#view svg .phrase").first.hover()
    expect(tip).to_have_text("S: clause")
    page.get_by_text("What the labels mean").click()
    assert "noun phrase" in page.locator("#view .legend").inner_text()
    phone = open_page(PHONE, _at("pieces"), has_touch=True)
    _ready(phone)
    cell = phone.locator("#view tbody td").filter(has_text=re.compile("^[BMEO]$")).first
    letter = cell.inner_text()
    cell.tap()
    expect(phone.locator("#tip")).to_contain_text(f"{letter}: ")
    phone.get_by_text("What the labels mean").tap()
    assert {"a whole word", "end of the text"} <= set(phone.locator("#view .legend dd").all_inner_texts())


def test_only_tabs_that_show_something(open_page):
    page = open_page(path=_at("networks", a="masked"))
    _ready(page)
    assert _tabs(page)[-2:] == ["Sub-networks", "Rows"]
    page.locator("#view tbody button").first.hover()
    expect(page.locator("#tip")).to_contain_text("Attends to pieces only if the word that looks is")
    page.get_by_label("Model", exact=True).select_option("bare")
    page.wait_for_selector("article[aria-label=bare] .bars")
    assert "Sub-networks" not in _tabs(page)
    assert page.get_by_role("tab", selected=True).inner_text() == "Words"

    def exported(route):
        answer = route.fetch().json()
        answer.pop("attention")
        for sentence in answer["sentences"]:
            sentence.update(governors=None, deprels=None, phrases=None, constituency=None)
        answer["relations"]["trees"] = {}
        answer["missing"] |= {"attention": "This model was exported.", "trees": "No parser is installed."}
        route.fulfill(json={key: value for key, value in answer.items() if value is not None})

    page.route("**/v1/explain", exported)
    page.get_by_label("Model", exact=True).select_option("sit")
    page.wait_for_selector("article[aria-label=sit] .output")
    assert _tabs(page) == ["Words", "Pieces"]
    told = page.locator("article[aria-label=sit]").inner_text()
    assert "No attention: This model was exported." in told
    assert "No trees: No parser is installed." in told


def test_back_stays_in_the_page(open_page):
    page = open_page()
    page.evaluate("window.stayed = true")
    page.locator("#start a.example").nth(1).click()
    _ready(page)
    asked = page.url
    page.get_by_role("tab", name="Words").click()
    page.get_by_label("Text", exact=True).fill(TEXT)
    page.get_by_role("button", name="Look inside").click()
    _ready(page)
    page.get_by_role("tab", name="Relations").click()
    page.get_by_role("slider", name="Distance").press("Home")  # a slider is no step
    page.go_back()
    expect(page.get_by_role("tab", selected=True)).to_have_text("Words")
    assert page.get_by_label("Text", exact=True).input_value() == TEXT
    page.go_back()
    page.go_back()
    expect(page.get_by_role("tab", selected=True)).to_have_text("Dependencies")
    assert page.url == asked
    page.go_back()
    expect(page.locator("#start a.example")).to_have_count(3)
    assert page.get_by_label("Text", exact=True).input_value() == ""
    assert not page.locator("#results").is_visible()
    page.go_forward()
    _ready(page)
    page.locator("#history a").first.click()
    _ready(page)
    assert page.evaluate("window.stayed")  # the page was never loaded anew


def test_rows_of_classifiers(open_page, tiny_engines):
    page = open_page(path=_at("rows", a="bare", b="masked"))
    _ready(page)
    lines = ["The cat sees a dog", "Two cats run .", "a big dog"]
    page.locator("#rows").fill("\n".join([lines[0], "", *lines[1:]]))
    page.get_by_role("button", name="Classify rows").click()
    table = page.locator("table.rows tbody tr")
    expect(table).to_have_count(3)
    told = {name: tiny_engines[name].classify(lines) for name in ("bare", "masked")}
    for place, row in enumerate(table.all()):
        texts = row.locator("td").all_inner_texts()
        assert texts[1] == lines[place]
        for name, text in zip(told, texts[2:], strict=True):
            assert text.startswith(f"{told[name][place].label} (")
    differ = sum(one.label != other.label for one, other in zip(*told.values(), strict=True))
    expect(page.locator("#view [role=status]")).to_contain_text(f"they differ on {differ}")
    page.get_by_role("link", name=lines[1]).first.click()
    _ready(page)
    assert page.locator("#view .word").all_inner_texts() == lines[1].split()
    page.get_by_label("Model", exact=True).select_option("tagged-pairs")
    page.get_by_label("Beside it").select_option("")
    page.get_by_label("Second text").fill("A dog")
    page.get_by_role("button", name="Look inside").click()
    _ready(page)
    page.get_by_role("tab", name="Rows").click()
    page.locator("#rows").fill("a cat\ta dog\na cat alone")
    page.get_by_role("button", name="Classify rows").click()
    expect(page.get_by_role("alert")).to_contain_text("Row 2: expected two texts with a tab between them")
