"""The pages at `/admin` in a real browser: every one by the keyboard alone, light and dark, nothing that axe objects to."""

import pytest
from e2e.playground.admin_support import WEEK, served
from e2e.playground.page_support import MISSING

pytestmark = [pytest.mark.skipif(MISSING is not None, reason=str(MISSING)), pytest.mark.timeout(600)]

HEAD = "(document.querySelector('#part h1')?.textContent ?? '')"
PAGES = ("Status", "Fleet", "Experiments", "Reports", "Keys", "Usage")


@pytest.fixture(scope="module")
def admin(tmp_path_factory):
    with served(tmp_path_factory.mktemp("admin")) as (url, key):
        yield url, key


def log_in(page, url, key, scheme="light"):
    page.do("open", url=f"{url}/admin", scheme=scheme)
    page.until("document.activeElement?.id", "token")
    page.do("type", text=key)
    page.press("Enter")
    page.until(HEAD, "Status")


def complaints(page):
    """But for the answer that asks for the login, which browsers log."""
    return [one for one in page.do("complaints") if "401" not in one]


def tab_to(page, label):
    """With Tab alone, from the page's beginning."""
    page.evaluate("(document.activeElement.blur(), window.getSelection().removeAllRanges())")
    for _ in range(20):
        page.press("Tab")
        if page.evaluate("document.activeElement.textContent.trim()") == label:
            return
    raise AssertionError(f"Tab does not come to {label}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_reached_and_read_with_the_keyboard(page, admin, scheme):
    url, key = admin
    log_in(page, url, key, scheme)
    for label in PAGES:
        tab_to(page, label)
        page.press("Enter")
        page.until(f"document.querySelector('nav [aria-current]')?.textContent === {label!r} && {HEAD} !== ''")
        page.until("document.activeElement?.id", "part")
        checked = page.do("axe")
        assert checked["violations"] == [], label
        problem = page.evaluate("document.querySelector('#part [role=alert]')?.textContent ?? ''")
        # The last week that is over is not the simulated month's.
        assert problem == "" or label == "Reports", problem
    assert complaints(page) == []
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(22, 24, 28)")


def test_a_report_is_asked_for_in_its_form_and_has_an_address(page, admin):
    url, key = admin
    log_in(page, url, key)
    page.evaluate("void (location.hash = 'reports')")
    page.until("document.querySelector('#of') !== null && document.activeElement.id", "part")
    page.evaluate("document.querySelector('#of').focus()")
    page.press("Control+a")
    page.do("type", text=WEEK)
    page.press("Enter")
    page.until(HEAD, f"{WEEK}, tenant default")
    assert page.evaluate("location.hash") == f"#reports?of={WEEK}"
    assert page.evaluate("document.title") == f"{WEEK}, tenant default · Foretype"
    text = page.evaluate("document.querySelector('#part').textContent")
    assert "60 users" in text and "suggestions read" in text and "not shown: too few users" in text
    page.evaluate("history.back()")
    page.until(f"{HEAD} !== '{WEEK}, tenant default'")
    assert complaints(page) == []


def test_a_login_lasts_in_this_browser_and_a_wrong_key_is_told(page, admin):
    url, key = admin
    page.do("open", url=f"{url}/admin#keys")
    page.until("document.activeElement?.id", "token")
    page.do("type", text="ft_wrong_key")
    page.press("Enter")
    page.until("document.getElementById('login-error').textContent", "This is not a key of this gateway.")
    page.press("Control+a")
    page.do("type", text=key)
    page.press("Enter")
    page.until(HEAD, "Keys")
    page.do("again")
    page.until(HEAD, "Keys")
    kept = page.evaluate("JSON.stringify(localStorage) + document.cookie")
    assert key not in kept and key.rpartition("_")[2] not in kept
    assert all(one["httpOnly"] and one["sameSite"] == "Strict" for one in page.do("cookies"))
