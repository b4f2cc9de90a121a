from foretype_client.policy.switches import Switches
from foretype_context.edits.pace import Eagerness
from foretype_lsp.options import IndexOptions, NextEditOptions, Options, parse
from hypothesis import given
from hypothesis import strategies as st


def test_nothing_gives_the_defaults():
    assert parse(None) == (Options(), [])
    assert parse([]) == parse({"enable": [], "inStrings": []}) == (Options(), [])  # empty tables of Lua
    assert parse({}) == (Options(), [])


def test_every_option_is_taken_in_camel_case():
    options, problems = parse(
        {
            "enable": {"*": True, "markdown": False},
            "debounceMs": 120,
            "multiLine": False,
            "inComments": {"markdown": False},
            "inStrings": True,
            "excludedGlobs": ["**/secret/**"],
            "gatewayUrl": "wss://foretype.example/v1/stream",
            "token": "t",
            "tokenFile": "/run/token",
            "stateDir": "/run/state",
            "model": "/m.gguf",
            "logLevel": "debug",
            "suggestionGrew": True,
            "askEarly": True,
        }
    )
    assert problems == []
    assert options.debounce_ms == 120
    assert not options.multi_line
    assert options.excluded_globs == ("**/secret/**",)
    assert options.suggestion_grew and options.ask_early
    assert (options.in_comments, options.in_strings) == ({"markdown": False}, {"*": True})


def test_a_bad_option_is_named_and_falls_back_and_the_others_are_kept():
    options, problems = parse({"debounceMs": "fast", "multiLine": False, "gatewayUrl": "http://x"})
    assert [p.option for p in problems] == ["debounceMs", "gatewayUrl"]
    assert "Expected `float | null`, got `str`" in str(problems[0])
    assert options == Options(multi_line=False)


def test_a_negative_delay_is_refused():
    options, problems = parse({"debounceMs": -1})
    assert options.debounce_ms is None
    assert len(problems) == 1


def test_a_misspelt_option_is_a_problem_that_lists_the_names():
    _, problems = parse({"debounceMS": 1})
    assert "debounceMs" in problems[0].message


def test_what_editors_keep_in_the_same_section_is_none():
    assert parse({"trace": {"server": "off"}}) == (Options(), [])


def test_null_means_not_set():
    assert parse({"token": None, "enable": None}) == (Options(), [])


def test_one_boolean_switches_all_languages():
    assert not parse({"enable": False})[0].enabled("python")


def test_a_language_that_is_not_named_follows_the_star_and_without_one_is_on():
    options, _ = parse({"enable": {"*": False, "python": True}})
    assert options.enabled("python")
    assert not options.enabled("go")
    assert parse({"enable": {"go": False}})[0].enabled("python")


def test_names_of_values_have_no_case():
    assert parse({"logLevel": "DEBUG"})[1] == []


def test_the_token_never_gets_into_a_log():
    assert "s3cret" not in str(parse({"token": "s3cret"})[0].redacted())


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(json | st.dictionaries(st.sampled_from(Options.__struct_encode_fields__), json))
def test_anything_at_all_gives_options(raw):
    options, problems = parse(raw)
    assert isinstance(options, Options)
    assert all(str(problem) for problem in problems)


def test_parts_of_the_policy_are_switched_one_by_one():
    options, problems = parse({"policies": {"speculative": True}})
    assert options.policies.speculative and options.policies.skip_deletions and problems == []
    options, (problem,) = parse({"policies": {"speculativ": True}})
    assert problem.option == "policies" and options.policies == Options().policies
    assert parse({"policies": []}) == (Options(), [])


def test_an_override_of_a_table_sets_its_own_entries_and_leaves_the_editors():
    editor = {"policies": {"speculative": True}, "index": {"dependencies": True, "cacheDir": "/a"}, "debounceMs": 9}
    options, problems = parse(
        editor, {"policies": {"unsure": True}, "index": {"enable": False}, "debounceMs": 5.0, "token": "t"}
    )
    assert problems == []
    assert options.policies == Switches(speculative=True, unsure=True)
    assert options.index == IndexOptions(enable=False, dependencies=True, cache_dir="/a")
    assert (options.debounce_ms, options.token) == (5.0, "t")


def test_an_override_stands_where_the_editors_own_cannot_be_read():
    options, problems = parse({"policies": {"speculativ": True}, "debounceMs": "fast"}, {"policies": {"unsure": True}})
    assert options.policies.unsure
    assert [problem.option for problem in problems] == ["policies", "debounceMs"]
    options, (problem,) = parse("no object", {"policies": {"unsure": True}})
    assert options.policies.unsure and problem.option == "initializationOptions"
    assert parse({"debounceMs": "fast"}, {"debounceMs": 5.0})[1] == []  # it is not used


def test_trust_is_given_by_a_boolean_alone_and_stays_where_nothing_is_said():
    assert Options().trusted
    assert not parse({"trusted": False})[0].trusted
    for word in ("yes", 1, [], {}):
        options, problems = parse({"trusted": word})
        assert not options.trusted and [problem.option for problem in problems] == ["trusted"]
    for silent in (None, {}, [], "nothing", {"trusted": None}, {"multiLine": False}):
        assert not parse(silent, trusted=False)[0].trusted
    assert parse({"trusted": True}, trusted=False)[0].trusted
    assert not parse({"trusted": True}, {"trusted": False})[0].trusted


def test_next_edits_have_a_switch_and_three_levels():
    assert parse({"nextEdit": False})[0].next_edit == NextEditOptions(enabled=False)
    assert parse({"nextEdit": {"eagerness": "high"}})[0].next_edit == NextEditOptions(eagerness=Eagerness.HIGH)
    assert parse({"nextEdit": []}) == (Options(), [])
    for wrong, named in (({"eagerness": "loud"}, "eagerness"), ({"eager": "low"}, "eager"), (3, "nextEdit")):
        options, problems = parse({"nextEdit": wrong})
        assert options == Options() and named in str(problems[0])
