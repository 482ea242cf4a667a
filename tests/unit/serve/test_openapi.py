"""The OpenAPI document holds: whatever is sent by it or against it, no answer is an error of ours."""

from __future__ import annotations

from itertools import product

import pytest
from fastapi.testclient import TestClient

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")

from hypothesis import HealthCheck, Phase, given, settings  # noqa: E402
from schemathesis import GenerationMode  # noqa: E402
from schemathesis.checks import not_a_server_error  # noqa: E402
from schemathesis.specs.openapi import checks  # noqa: E402

from syntaxformer.serve.gate import MAX_KEYS  # noqa: E402

# Not among them: that all data of the right form is accepted. n_best may be more than the beam, for one.
HOLD = [
    not_a_server_error, checks.status_code_conformance, checks.content_type_conformance,
    checks.response_schema_conformance, checks.response_headers_conformance,
]  # fmt: skip
POSITIVE, NEGATIVE = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
WITH_BODY = ("/v1/translate", "/v1/score", "/v1/classify")
OPERATIONS = (*WITH_BODY, "/v1/models", "/healthz", "/readyz", "/metrics")
QUICK = settings(
    max_examples=20, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate),
)  # fmt: skip


def _send(app, path, mode):
    """Requests by the document, or against it: statuses, headers and bodies are those that it lists."""
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    (operation,) = [result.ok() for result in schema.get_all_operations() if result.ok().path == path]
    n_sent = 0

    @QUICK
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case):
        nonlocal n_sent
        n_sent += 1
        case.call_and_validate(checks=HOLD)

    send()
    assert n_sent > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "mode"), [*product(OPERATIONS, [POSITIVE]), *product(WITH_BODY, [NEGATIVE])]
)
def test_no_request_is_answered_by_an_error_of_ours(make_app, path, mode):
    _send(make_app(), path, mode)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [POSITIVE, NEGATIVE])
def test_no_text_to_look_into_is_answered_by_an_error_of_ours(make_app, tiny_engines, mode):
    """The same with real models: nothing that is a string breaks them."""
    _send(make_app(*tiny_engines.values()), "/v1/explain", mode)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["\0", "\u200b", "\u0301", "\n\n.", "￨", "</s>", "🜁" * 30, "a\u2028b", "x" * 90]
)
@pytest.mark.parametrize("model", ["sit", "masked"])
def test_odd_texts_are_explained_or_refused(make_app, tiny_engines, text, model):
    with TestClient(make_app(*tiny_engines.values())) as client:
        response = client.post("/v1/explain", json={"text": text, "model": model})
    assert response.status_code in (200, 422), response.text


def test_the_document_has_examples_and_all_errors(make_app):
    with TestClient(make_app()) as client:
        document = client.get("/openapi.json").json()
    assert set(document["paths"]) == {*OPERATIONS, "/v1/explain"}
    post = document["paths"]["/v1/translate"]["post"]
    assert {"200", "400", "401", "413", "422", "429", "503"} <= set(post["responses"])
    assert "security" not in post
    example = document["components"]["schemas"]["TranslateRequest"]["examples"][0]
    assert example == {"texts": ["A man is standing on a ladder."]}
    terms = document["components"]["schemas"]["TranslateRequest"]["properties"]["terms"]
    assert terms["anyOf"][0]["maxProperties"] <= MAX_KEYS, "more are refused before they are read"
    schema = post["responses"]["422"]["content"]["application/json"]["schema"]
    assert schema == {"$ref": "#/components/schemas/ErrorBody"}


def test_a_key_is_in_the_document(make_app):
    """Clients that are made of it could not send it otherwise."""
    with TestClient(make_app(api_key="secret")) as client:
        document = client.get("/openapi.json").json()
    assert document["components"]["securitySchemes"] == {"HTTPBearer": {"type": "http", "scheme": "bearer"}}
    paths = document["paths"].items()
    secured = {path for path, methods in paths if any("security" in each for each in methods.values())}
    assert secured == {"/v1/translate", "/v1/score", "/v1/classify", "/v1/explain", "/v1/models"}
    assert "421" in document["paths"]["/healthz"]["get"]["responses"]
