"""What a gateway of one user does without."""

import subprocess
import sys


def loaded(imported: str, *names: str) -> list[str]:
    script = f"import sys\nimport {imported}\nprint('\\n'.join(name for name in {names!r} if name in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return ran.stdout.split()


def test_a_plan_imports_no_client_of_http_and_no_console() -> None:
    assert not loaded("foretype_backend.start.cli, foretype_backend.start.gateway", "httpx", "rich.console", "pygments")


def test_a_store_in_a_file_imports_no_driver_of_postgresql_and_no_store_of_texts() -> None:
    modules = "foretype_backend.telemetry.store, foretype_backend.telemetry.upkeep, foretype_backend.telemetry.intake"
    assert not loaded(modules, "psycopg", "obstore", "cryptography")


def test_the_engine_imports_no_converter_of_models() -> None:
    pipeline = "foretype_backend.engines.embedded.openvino_pipeline"
    assert loaded(pipeline, "openvino_genai", "openvino_telemetry", "numpy.ma") == ["openvino_genai"]
