"""Whether answers are as an OpenAPI document says: both come as JSON on standard input, and what is wrong goes to standard output."""

import json
import sys

from jsonschema import Draft202012Validator, RefResolver

said = json.load(sys.stdin)
document, answers = said["document"], said["answers"]


def close(schema):
    """Nothing but what is documented may be in an object."""
    if isinstance(schema, dict):
        if "properties" in schema:
            schema["additionalProperties"] = False
        for part in schema.values():
            close(part)
    elif isinstance(schema, list):
        for part in schema:
            close(part)


def follow(part):
    while "$ref" in part:
        name = part["$ref"]
        part = document
        for step in name.removeprefix("#/").split("/"):
            part = part[step.replace("~1", "/")]
    return part


# What may be sent is closed by the document itself.
bodies = {name: json.loads(json.dumps(document["components"]["schemas"][name])) for name in ("Promote", "Depose", "Empty")}
close(document)
resolver = RefResolver.from_schema(document)
for name, schema in document["components"]["schemas"].items():
    Draft202012Validator.check_schema(schema)

met = set()
for answer in answers:
    where = f'{answer["method"]} {answer["path"]} {answer["status"]}'
    operation = follow(document["paths"].get(answer["path"], {})).get(answer["method"], {})
    response = operation.get("responses", {}).get(str(answer["status"]))
    if response is None:
        print(f"{where}: it is not documented")
        continue
    sent = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {}).get("$ref")
    if sent and answer["status"] in (200, 400, 409):
        body = bodies[sent.split("/")[-1]]
        fits = Draft202012Validator(body).is_valid(json.loads(answer["sent"] or "{}"))
        if fits != (answer["status"] != 400):
            print(f'{where}: {answer["sent"]} {"fits" if fits else "does not fit"}')
    met.add((answer["path"], answer["method"], str(answer["status"])))
    content = follow(response).get("content", {}).get(answer["type"])
    if content is None:
        print(f'{where}: {answer["type"]} is not documented')
    elif answer["type"] == "application/json":
        checker = Draft202012Validator(content["schema"], resolver=resolver)
        for error in checker.iter_errors(json.loads(answer["body"])):
            print(f"{where}: {error.json_path}: {error.message[:300]}")
    for event in answer.get("events", []):
        schema = {"$ref": "#/components/schemas/" + {"change": "Change", "term": "Term"}[event["name"]]}
        for error in Draft202012Validator(schema, resolver=resolver).iter_errors(event["data"]):
            print(f"{where}: {event['name']}: {error.json_path}: {error.message[:300]}")

for path, item in document["paths"].items():
    for method, operation in follow(item).items():
        for status in operation["responses"]:
            # What takes a store that is away, and that of another test.
            if status not in ("503", "413", "403") and (path, method, status) not in met:
                print(f"{method} {path} {status}: it was documented, and not met")
