"""What a gateway of one user does without."""

from imports import imported


def test_a_plan_imports_no_client_of_http_and_no_console() -> None:
    assert not imported(
        "import foretype_backend.start.cli, foretype_backend.start.gateway", "httpx", "rich.console", "pygments"
    )


def test_a_store_in_a_file_imports_no_driver_of_postgresql_and_no_store_of_texts() -> None:
    script = (
        "import foretype_backend.telemetry.store, foretype_backend.telemetry.upkeep, foretype_backend.telemetry.intake"
    )
    assert not imported(script, "psycopg", "obstore", "cryptography")


def test_the_engine_imports_no_converter_of_models() -> None:
    script = "import foretype_backend.engines.embedded.openvino_pipeline"
    assert imported(script, "openvino_genai", "openvino_telemetry", "numpy.ma") == ["openvino_genai"]
