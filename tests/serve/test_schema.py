"""schemathesis tries every route of the OpenAPI schema with bodies that fit it and bodies that do not."""

from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import CHECKS, load_all_checks

from tests.serve.serving import all_kinds, make_app

# More texts than the schema allows are refused with 413, which schemathesis would not take for a refusal.
REFUSED = schemathesis.Config.from_dict({"checks": {"negative_data_rejection": {"expected-statuses": ["4xx"]}}})
schema = schemathesis.openapi.from_asgi("/openapi.json", make_app(all_kinds()), config=REFUSED)
load_all_checks()
# A body that the schema allows may still be refused: a text without [MASK], a name that no model has.
CHOSEN: list[Any] = [
    CHECKS.get_one(name)
    for name in (
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_schema_conformance",
        "negative_data_rejection",
        "unsupported_method",
    )
]


@schema.parametrize()
@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_routes_keep_to_their_schema(case: schemathesis.Case) -> None:
    case.call_and_validate(checks=CHOSEN)
