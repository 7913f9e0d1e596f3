"""Checks what contrib says to Kubernetes, compose, HAProxy and builders of images, by their own rules and the project's.

usage: lint.py CONTRIB

Manifests are checked against the schemas of the oldest version of Kubernetes that the project names and of the newest one
that is known; schemas do not say whether one object names what another one has, so that is looked at here.
"""

import pathlib
import re
import subprocess
import sys

import kubernetes_validate
import yaml

OLDEST = "1.29"
contrib = pathlib.Path(sys.argv[1])
tools = pathlib.Path(sys.executable).parent
problems = []


def pod_of(document):
    """The pod that this object has copies of, if it has any."""
    return document.get("spec", {}).get("template", {}).get("spec")


def containers_of(pod):
    return pod.get("initContainers", []) + pod["containers"]


def check_schema(where, document):
    for version in (OLDEST, kubernetes_validate.latest_version()):
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            problems.append(f"{where}: Kubernetes {version}: {error.message}")


def check_pod(where, document):
    """What every pod of the project promises."""
    pod, spec = pod_of(document), document["spec"]
    labels = spec["template"]["metadata"]["labels"].items()
    want(spec["selector"]["matchLabels"].items() <= labels, where, "the selector does not find its own pods")
    security = pod.get("securityContext", {})
    want(security.get("runAsNonRoot") is True, where, "it may run as root")
    want(security.get("runAsUser", 0) > 0 and security.get("runAsGroup", 0) > 0, where, "user and group have no numbers")
    want(security.get("seccompProfile") == {"type": "RuntimeDefault"}, where, "no seccomp profile")
    want(pod.get("automountServiceAccountToken") is False, where, "it has a token of the cluster's API that it does not need")
    volumes = {volume["name"] for volume in pod.get("volumes", [])}
    volumes |= {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", [])}
    for container in containers_of(pod):
        there = f"{where}, container {container['name']}"
        own = container.get("securityContext", {})
        want(own.get("allowPrivilegeEscalation") is False, there, "it may gain privileges")
        want(own.get("readOnlyRootFilesystem") is True, there, "its root can be written to")
        want(own.get("capabilities") == {"drop": ["ALL"]}, there, "it has capabilities")
        want("requests" in container.get("resources", {}), there, "it asks for no resources")
        want("cpu" not in container["resources"].get("limits", {}), there, "a limit of the processor delays renewals")
        want(":" in container["image"], there, "the image has no tag")
        ports = {port["name"] for port in container.get("ports", [])}
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            probe = container.get(kind, {})
            action = probe.get("httpGet") or probe.get("tcpSocket") or {}
            want(action.get("port") in ports | {None}, there, f"{kind} asks a port that is not there")
            want(not action.get("path", "").startswith("/leader"), there, f"{kind}: no roll-out would end")
        for mount in container.get("volumeMounts", []):
            want(mount["name"] in volumes, there, f"there is no volume {mount['name']}")
        check_timing(there, container, pod)


def check_timing(where, container, pod):
    """A program that is told to end has the time that it was promised."""
    words = container.get("command", []) + container.get("args", [])
    times = dict(re.findall(r"--(lease|grace)=(\d+)s", " ".join(words)))
    granted = pod.get("terminationGracePeriodSeconds", 30)
    needed = times.get("lease") if "agent" in words else times.get("grace")
    want(int(needed or 0) < granted, where, f"it needs {needed} s to end in order, and is granted {granted}")


def check_selectors(where, documents):
    """Services, budgets and policies are about pods that are there."""
    pods = [document["spec"]["template"]["metadata"]["labels"].items() for document in documents if pod_of(document)]
    for document in documents:
        spec = document.get("spec", {})
        selector = spec.get("selector") if document["kind"] == "Service" else None
        if document["kind"] == "PodDisruptionBudget":
            selector = spec["selector"]["matchLabels"]
        if document["kind"] == "NetworkPolicy":
            selector = spec["podSelector"]["matchLabels"]
        found = selector is None or any(selector.items() <= labels for labels in pods)
        want(found, where, f"{document['kind']} {document['metadata']['name']} selects no pod")


def check_proxy(document):
    """HAProxy says what it thinks of a configuration; it resolves no name for that."""
    for name, text in document.get("data", {}).items():
        if name.endswith(".cfg"):
            file = pathlib.Path(__file__).with_name(name)
            file.write_text(text)
            env = {"NAMESPACE": "default", "PATH": "/usr/sbin:/usr/bin"}
            run(["haproxy", "-c", "-f", str(file)], name, env=env)


def run(command, what, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    want(done.returncode == 0, what, done.stdout + done.stderr)


def want(holds, where, what):
    if not holds:
        problems.append(f"{where}: {what}")


def check_compose(file):
    run([sys.executable, tools / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", file], file.name)
    document = yaml.safe_load(file.read_text())
    for name, service in document["services"].items():
        there = f"{file.name}, {name}"
        want("no-new-privileges:true" in service.get("security_opt", []), there, "it may gain privileges")
        want("healthcheck" in service, there, "nobody asks whether it is well")
        want(not any("PASSWORD" in key and not key.endswith("_FILE") for key in service["environment"]), there, "a password in the environment")
        for secret in service.get("secrets", []):
            want(secret in document["secrets"], there, f"there is no secret {secret}")
        if service["image"].startswith("registry.example/"):
            hardened = service.get("read_only") is True and service.get("cap_drop") == ["ALL"] and service.get("user")
            want(hardened, there, "it has more rights than it needs")


def main():
    everything = []
    for file in sorted((contrib / "kubernetes").glob("*.yaml")):
        documents = list(yaml.safe_load_all(file.read_text()))
        everything += documents
        for document in documents:
            where = f"{file.name}, {document['kind']} {document['metadata']['name']}"
            check_schema(where, document)
            check_proxy(document)
            if pod_of(document):
                check_pod(where, document)
    want(len(everything) > 10, contrib, "there are hardly any manifests")
    check_selectors("contrib/kubernetes", everything)
    check_compose(contrib / "compose" / "compose.yaml")
    run([tools / "hadolint", contrib / "container" / "Containerfile"], "Containerfile")
    for problem in problems:
        print(f"  {problem}")
    print(f"  {len(everything)} objects for Kubernetes, {len(problems)} problems")
    return 1 if problems else 0


sys.exit(main())
