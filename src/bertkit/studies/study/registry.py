"""Which function runs which study: `module:function`, imported when it is asked for.

Such a function takes a StudyRequest and gives a StudyOutcome. A study may be killed at any moment; its finished parts
lie in request.parts as JSON, and the same call goes on. Its recipe is recipes/NAME.toml in this package.
"""

from importlib import import_module

from bertkit.errors import BertkitError
from bertkit.studies.study.request import StudyOutcome, StudyRequest

PRETRAINING = "bertkit.studies.study.pretraining:run_pretraining_study"
STUDIES: dict[str, str] = {
    "direction": PRETRAINING,
    "masking": PRETRAINING,
    "size": PRETRAINING,
    "steps": PRETRAINING,
    "nsp": PRETRAINING,
    "features": "bertkit.studies.findings.features:run_features_study",
    "context": "bertkit.studies.findings.context:run_context_study",
    "compute": "bertkit.studies.findings.compute:run_compute_study",
}


def call_study(request: StudyRequest) -> StudyOutcome:
    """Run the study that the request names."""
    name = request.recipe.name
    if name not in STUDIES:
        raise BertkitError(f"no study is named {name!r}; choose one of {', '.join(STUDIES)}")
    module, _, function = STUDIES[name].partition(":")
    outcome: StudyOutcome = getattr(import_module(module), function)(request)
    return outcome
