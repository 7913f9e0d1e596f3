"""Starts by podman what a manifest for Kubernetes says, on this machine: as much of a kubelet as the project's pods need.

Modes and owners of volumes are those that a kubelet gives them, which podman's own `kube play` does not do.
"""

import json
import os
import pathlib
import shutil
import subprocess
import urllib.error
import urllib.request

NAMESPACE = "trial"


def podman(*args, check=True, **options):
    done = subprocess.run(["podman", *map(str, args)], capture_output=True, text=True, **options)
    if check and done.returncode != 0:
        raise RuntimeError(f"podman {' '.join(map(str, args))}: {done.stdout}{done.stderr}")
    return done


class Pod:
    """One pod of an object that has copies of it."""

    def __init__(self, document, name, work, network, secrets, aliases=()):
        self.name, self.secrets = name, secrets
        self.spec = document["spec"]["template"]["spec"]
        self.security = self.spec.get("securityContext", {})
        self.volumes = pathlib.Path(work) / name
        shutil.rmtree(self.volumes, ignore_errors=True)
        self.volumes.mkdir(parents=True)
        for volume in self.spec.get("volumes", []):
            self._make_volume(volume)
        for claim in document["spec"].get("volumeClaimTemplates", []):
            self._own(self._folder(claim["metadata"]["name"], 0o755))
        names = [f"--network-alias={alias}" for alias in (name, *aliases)]
        podman("pod", "create", f"--name={name}", f"--hostname={name}", f"--network={network}", *names)
        self.containers = {}
        for container in self.spec.get("initContainers", []):
            assert container["restartPolicy"] == "Always", "other containers that come first are not known here"
            self.start(container)
            if probe := container.get("startupProbe"):
                wait(f"{name}: startupProbe", lambda probe=probe, container=container: self.probe(container, probe))
        for container in self.spec["containers"]:
            self.start(container)

    def _folder(self, name, mode):
        folder = self.volumes / name
        folder.mkdir()
        folder.chmod(mode)
        return folder

    def _own(self, path):
        """What a kubelet does for `fsGroup`."""
        group = self.security.get("fsGroup")
        if group is None:
            return
        os.chown(path, -1, group)
        path.chmod(path.stat().st_mode & 0o7777 | (0o2770 if path.is_dir() else 0o440))

    def _make_volume(self, volume):
        if "emptyDir" in volume:
            self._own(self._folder(volume["name"], 0o777))
            return
        source = volume.get("secret") or volume["configMap"]
        folder = self._folder(volume["name"], 0o1777)
        for name, content in self.secrets[source.get("secretName") or source["name"]].items():
            file = folder / name
            file.write_text(content)
            file.chmod(source.get("defaultMode", 0o644))
            self._own(file)
        self._own(folder)

    def _environment(self, container):
        environment = {}
        for variable in container.get("env", []):
            source = variable.get("valueFrom", {})
            if "fieldRef" in source:
                fields = {"metadata.name": self.name, "metadata.namespace": NAMESPACE}
                environment[variable["name"]] = fields[source["fieldRef"]["fieldPath"]]
            elif "secretKeyRef" in source:
                reference = source["secretKeyRef"]
                environment[variable["name"]] = self.secrets[reference["name"]][reference["key"]]
            else:
                environment[variable["name"]] = variable["value"]
        return environment

    def _mounts(self, container, environment):
        for mount in container.get("volumeMounts", []):
            source = self.volumes / mount["name"]
            path = mount.get("subPath", mount.get("subPathExpr", ""))
            for name, value in environment.items():
                path = path.replace(f"$({name})", value)
            options = "ro" if mount.get("readOnly") else "rw"
            yield f"--volume={source / path}:{mount['mountPath']}:{options}"

    def start(self, container):
        """Starts this container, or starts it again."""
        name = f"{self.name}-{container['name']}"
        podman("rm", "--force", "--time=0", name, check=False)
        security = {**self.security, **container["securityContext"]}
        environment = self._environment(container)
        args = ["run", "--detach", f"--pod={self.name}", f"--name={name}"]
        args += [f"--user={security['runAsUser']}:{security['runAsGroup']}"]
        if "fsGroup" in self.security:
            args.append(f"--group-add={self.security['fsGroup']}")
        if security["readOnlyRootFilesystem"]:
            args += ["--read-only", "--read-only-tmpfs=false"]
        if not security["allowPrivilegeEscalation"]:
            args.append("--security-opt=no-new-privileges")
        args += [f"--cap-drop={capability}" for capability in security["capabilities"]["drop"]]
        args += [f"--env={key}={value}" for key, value in environment.items()]
        args += self._mounts(container, environment)
        if "command" in container:
            args.append(f"--entrypoint={json.dumps(container['command'])}")
        podman(*args, container["image"], *container.get("args", []))
        self.containers[container["name"]] = container

    def address(self):
        infra = podman("pod", "inspect", "--format={{.InfraContainerID}}", self.name).stdout.strip()
        networks = json.loads(podman("inspect", "--format={{json .NetworkSettings.Networks}}", infra).stdout)
        return next(iter(networks.values()))["IPAddress"]

    def ask(self, port, path):
        """The status and text that a path is answered with; without status if nobody answers."""
        try:
            with urllib.request.urlopen(f"http://{self.address()}:{port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, ""
        except OSError:
            return None, ""

    def get(self, port, path):
        return self.ask(port, path)[0]

    def probe(self, container, probe):
        if "exec" in probe:
            name = f"{self.name}-{container['name']}"
            return podman("exec", name, *probe["exec"]["command"], check=False).returncode == 0
        action = probe.get("httpGet") or probe["tcpSocket"]
        port = next(port["containerPort"] for port in container["ports"] if port["name"] == action["port"])
        if "tcpSocket" in probe:
            return self.get(port, "/") is not None
        return self.get(port, action["path"]) == 200

    def is_ready(self):
        """Whether all probes of all containers succeed now."""
        kinds = ("startupProbe", "livenessProbe", "readinessProbe")
        asked = [(container, container[kind]) for container in self.containers.values() for kind in kinds if kind in container]
        assert asked, f"{self.name} has no probe"
        return all(self.probe(container, probe) for container, probe in asked)

    def log(self, container):
        done = podman("logs", f"{self.name}-{container}", check=False)
        return done.stdout + done.stderr

    def end(self):
        """Ends the pod as a kubelet does: what was started last ends first, each within what the pod is granted."""
        seconds = self.spec.get("terminationGracePeriodSeconds", 30)
        for name in reversed(list(self.containers)):
            container = f"{self.name}-{name}"
            podman("stop", f"--time={seconds}", container)
            code = podman("inspect", "--format={{.State.ExitCode}}", container).stdout.strip()
            if code != "0":
                raise RuntimeError(f"{container} has ended with {code}:\n{self.log(name)}")


def wait(what, holds, seconds=60):
    """Asks until it holds."""
    import time

    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise RuntimeError(f"waited {seconds} s in vain: {what}")
        time.sleep(0.05)
