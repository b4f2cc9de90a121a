"""The page holds everything it needs, and its script is what the formulas make."""

from importlib.resources import files

from foretype_plan.page import page
from foretype_plan.scenario import Scenario, Tier
from foretype_plan.translate import script


def test_the_script_is_what_the_formulas_make():
    assert (files("foretype_plan") / "static/formulas.js").read_text("utf-8") == script(), "make plan-page"


def test_the_page_is_one_file():
    made = page(Scenario(tier={"fast": Tier(gpu="l4", model="qwen2.5-coder-1.5b", price=0.5)}))
    assert not [mark for mark in ("/*UPLOT", "/*FORMULAS*/", "/*GIVEN*/", "/*APP*/") if mark in made]
    assert "src=" not in made and "<link" not in made
    assert '"price": 0.5' in made and "NaN" not in made.split("const GIVEN")[1].split("</script>")[0]
