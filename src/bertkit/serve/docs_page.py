"""The page at /docs: every route with an example to send from the page itself, out of the OpenAPI schema.

Self-contained: no scripts, styles or fonts from elsewhere, so that it works without a way to the internet.
"""

import json
from html import escape
from typing import Any

FRAME = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>bertkit: routes</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }}
section {{ border-top: 1px solid #bbb; padding: .5rem 0 1rem; }}
h2 {{ font-size: 1.1rem; font-family: ui-monospace, monospace; }}
textarea, pre {{ width: 100%; box-sizing: border-box; font: 14px/1.4 ui-monospace, monospace; }}
textarea {{ min-height: 6rem; }}
pre {{ background: #f3f3f3; color: #111; padding: .5rem; overflow: auto; max-height: 24rem; white-space: pre-wrap; }}
pre:empty {{ display: none; }}
dt {{ font-family: ui-monospace, monospace; }} dd {{ margin: 0 0 .3rem 1.5rem; }}
</style>
<h1>bertkit: routes</h1>
<p>{description}</p>
<p>The schema for programs: <a href="openapi.json">openapi.json</a>. A page to try the models: <a href=".">here</a>.</p>
<p><label>API key, if this server wants one: <input id="key" type="password" autocomplete="off"></label></p>
{sections}
<script>
for (const form of document.querySelectorAll("form")) form.addEventListener("submit", async (event) => {{
  event.preventDefault();
  const body = form.querySelector("textarea"), key = document.getElementById("key").value, out = form.querySelector("pre");
  const headers = key ? {{ authorization: "Bearer " + key }} : {{}};
  if (body) headers["content-type"] = "application/json";
  out.textContent = "...";
  try {{
    const answer = await fetch(form.dataset.path, {{ method: form.dataset.method, headers, body: body ? body.value : undefined }});
    out.textContent = answer.status + "\\n" + (await answer.text()).slice(0, 20000);
  }} catch (error) {{ out.textContent = String(error); }}
}});
</script>
</html>
"""


def docs_html(schema: dict[str, Any]) -> str:
    """All routes of an OpenAPI schema."""
    sections = [
        _section(path, method, operation, schema)
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
    ]
    return FRAME.format(description=escape(schema["info"]["description"]), sections="\n".join(sections))


def _section(path: str, method: str, operation: dict[str, Any], schema: dict[str, Any]) -> str:
    body = _body_of(operation, schema)
    examples = body.get("examples", [])
    shown = json.dumps(examples[0], indent=2, ensure_ascii=False) if examples else ""
    label = f"Body of {path}"
    area = f'<textarea aria-label="{escape(label)}" spellcheck="false">{escape(shown)}</textarea>' if body else ""
    fields = "".join(_field(name, field) for name, field in body.get("properties", {}).items())
    return (
        f"<section><h2>{method.upper()} {escape(path)}</h2><p>{escape(operation.get('description', ''))}</p>"
        f"<dl>{fields}</dl>"
        f'<form data-path="{escape(path.lstrip("/"))}" data-method="{method.upper()}">{area}'
        "<button>Send</button><pre></pre></form></section>"
    )


def _body_of(operation: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    name = content.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = schema["components"]["schemas"].get(name, {})
    return found


def _field(name: str, field: dict[str, Any]) -> str:
    default = f" = {json.dumps(field['default'])}" if "default" in field else ""
    return f"<dt>{escape(name + default)}</dt><dd>{escape(field.get('description', ''))}</dd>"
