"""The explorer in a headless Chromium, as a person uses it, on random models; nothing leaves the machine."""

from __future__ import annotations

import csv
import io
import shutil
import threading
import time

import pytest
import uvicorn

from syntaxformer.serve import ServiceConfig, add_explorer, create_app

playwright_api = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install playwright"
)

expect = playwright_api.expect
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")

QUIET = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
DESKTOP, PHONE = {"width": 1180, "height": 820}, {"width": 390, "height": 844}
TEXT = "The cat sees a small dog ."


def _run(app):
    """The application in a thread; returns its server and address."""
    add_explorer(app)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    port = server.servers[0].sockets[0].getsockname()[1]
    return server, thread, f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def address(tiny_engines):
    app = create_app(ServiceConfig(models=dict.fromkeys(tiny_engines, ".")), tiny_engines)
    server, thread, url = _run(app)
    yield url
    server.should_exit = True
    thread.join(20)


@pytest.fixture(scope="module")
def browser():
    with playwright_api.sync_playwright() as playwright:
        one = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield one
        one.close()


@pytest.fixture
def open_page(browser, address):
    """Open a page in a window of a size; at the end no complaint and no request to another machine is allowed."""
    contexts, complaints = [], []

    def watch(page):
        page.on(
            "console",
            lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None,
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda one: None if one.url.startswith((address, "blob:")) else complaints.append(one.url),
        )

    def make(window=DESKTOP, path="/", scripts="", **options):
        context = browser.new_context(viewport=window, **options)
        context.set_default_timeout(15_000)
        contexts.append(context)
        page = context.new_page()
        watch(page)
        page.goto(address + path)
        return page

    yield make
    for context in contexts:
        context.close()
    assert complaints == []


def _ready(page):
    page.wait_for_selector("#results:not([hidden]):not([aria-busy])")
    expect(page.locator("#status")).not_to_have_text("Working …")


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
    view = _tab(page, "Sub-networks")
    assert "fine-tuned with masks" in view.inner_text()
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


@pytest.mark.parametrize("window", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_switching_models_and_csv(open_page, window):
    page = open_page(window)
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
    assert page.evaluate("document.activeElement.textContent") == "Sub-networks"
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    unnamed = page.evaluate(
        "[...document.querySelectorAll('button, select, textarea, input')].filter((one) => "
        "!(one.labels?.length || one.textContent.trim() || one.ariaLabel)).length"
    )
    assert unnamed == 0


def test_dark_and_light(open_page):
    ground = "getComputedStyle(document.body).backgroundColor"
    page = open_page(color_scheme="dark")
    dark = page.evaluate(ground)
    button = page.locator("#theme")
    button.click()
    light = page.evaluate(ground)
    assert (button.inner_text(), light != dark) == ("Light", True)
    page.reload()
    assert page.evaluate(ground) == light
    button.click()
    assert (button.inner_text(), page.evaluate(ground)) == ("Dark", dark)


def test_a_key_is_asked_for(open_page, browser, tiny_engines):
    app = create_app(ServiceConfig(models={"bare": "."}, api_key="secret"), {"bare": tiny_engines["bare"]})
    server, thread, url = _run(app)
    try:
        page = browser.new_page()
        page.goto(f"{url}/?text=The+cat")
        page.get_by_label("Key of this service").fill("secret")
        page.get_by_role("button", name="Use it").click()
        page.wait_for_selector("article[aria-label=bare] .bars")
        assert not page.get_by_label("Key of this service").is_visible()
        page.close()
    finally:
        server.should_exit = True
        thread.join(20)


def test_the_policy_allows_this_server_only(open_page, address):
    from urllib.request import urlopen

    for path in ("/", "/explore", "/explore/static/app.js"):
        with urlopen(address + path) as response:
            policy = response.headers["Content-Security-Policy"]
            assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
            assert "unsafe" not in policy
            assert response.headers["X-Content-Type-Options"] == "nosniff"
