"""Builds the image and does what the manifests say, by podman, as far as one machine can.

usage: trial.py CONTRIB IMAGE STAND_INS CLIENTS

Images from elsewhere are stood in for by ones that are built of STAND_INS, a Debian system. It runs in namespaces of its
own, with which its processes, mounts and networks end.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import yaml
from kubelet import NAMESPACE, Pod, podman, wait

contrib, image, stand_ins, clients = map(pathlib.Path, sys.argv[1:5])
here = pathlib.Path(__file__).parent
PRIMACY = "registry.example/primacy:0.1.0"
SERVICE = "registry.example/service:1.0.0"
NETWORK = "primacy-trial"
LEASE = 10


def say(what):
    print(f"  {what}", flush=True)


def want(holds, what):
    if not holds:
        raise RuntimeError(what)


def set_up():
    """Containers of this trial alone, in a machine that may have no systemd and no rights to raise limits."""
    for place in ("/run", "/dev/shm"):
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", place], check=True)
    short = pathlib.Path("/run/trial")
    short.mkdir()
    (short / "containers.conf").write_text(
        '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\nlog_driver = "k8s-file"\n'
        f'[network]\nnetwork_backend = "netavark"\nnetwork_config_dir = "{here}/networks"\n'
        '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "runc"\n'
    )
    overlay = "overlay" in pathlib.Path("/proc/filesystems").read_text()
    (short / "storage.conf").write_text(f'[storage]\ndriver = "{"overlay" if overlay else "vfs"}"\ngraphroot = "{here}/storage"\nrunroot = "{short}/run"\n')
    os.environ["CONTAINERS_CONF"] = str(short / "containers.conf")
    os.environ["CONTAINERS_STORAGE_CONF"] = str(short / "storage.conf")
    # Checks of health are called by this trial, where no systemd has timers.
    os.environ["DISABLE_HC_SYSTEMD"] = "true"
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def buildah(*args):
    done = subprocess.run(["buildah", *map(str, args)], capture_output=True, text=True)
    want(done.returncode == 0, f"buildah {args}: {done.stdout}{done.stderr}")


def build_images():
    build = ["build", "--isolation=chroot"]
    buildah(*build, f"--tag={PRIMACY}", image)
    buildah(*build, "--tag=localhost/system", f"--file={here / 'Containerfile.system'}", stand_ins)
    context = here / "context"
    shutil.copytree(clients / "python" / "src", context)
    for name in ("postgres.sh", "service.py"):
        shutil.copy(here / name, context)
    stand_in = [*build, f"--file={here / 'Containerfile.stand-ins'}", "--build-arg=FROM=localhost/system"]
    buildah(*stand_in, "--target=postgres", "--tag=postgres:17", context)
    buildah(*stand_in, "--target=haproxy", "--tag=haproxy:3.0", context)
    buildah(*stand_in, "--target=service", f"--tag={SERVICE}", context)


def try_image():
    """The image by itself: what it has, as whom it runs, and that it needs nothing to write to."""
    config = json.loads(podman("inspect", "--type=image", PRIMACY).stdout)[0]["Config"]
    want(config["User"] == "65532:65532" and config["StopSignal"] == "SIGTERM", f"its configuration is {config}")
    want(config["Entrypoint"] == ["/usr/bin/primacy"], f"its configuration is {config}")
    hardened = ["--read-only", "--read-only-tmpfs=false", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--network=none"]
    version = podman("run", "--rm", *hardened, PRIMACY, "--version").stdout
    want(version.startswith("primacy 0."), f"it says {version}")
    # The command runs itself, since there is no other program.
    led = podman("run", "--rm", *hardened, "--volume=state:/var/lib/primacy", PRIMACY, "run", "--", "/usr/bin/primacy", "--version")
    want(led.stdout == version and "with token 1" in led.stderr, f"it says {led.stdout}{led.stderr}")
    podman("run", "--detach", "--name=image-agent", *hardened, "--volume=state:/var/lib/primacy", "--tmpfs=/run/primacy:mode=0755,rw",
           "--user=65532:65532", PRIMACY, "agent", "--socket=/var/lib/primacy/agent/agent.sock")
    listed = ["exec", "image-agent", "/usr/bin/primacy", "agent", "list", "--socket=/var/lib/primacy/agent/agent.sock"]
    wait("an agent in the image", lambda: podman(*listed, check=False).returncode == 0)
    podman("stop", "--time=10", "image-agent")
    want(podman("inspect", "--format={{.State.ExitCode}}", "image-agent").stdout == "0\n", "the agent has not ended in order")
    say("the image runs as user 65532, with a root that is only read, without capabilities")


def start_database():
    """The database of the manifests' secrets."""
    password = here / "password"
    password.write_text("rosebud")
    password.chmod(0o600)
    podman("run", "--detach", "--name=trial-db", f"--network={NETWORK}", "--network-alias=db.example", "--env=POSTGRES_USER=jobs",
           "--env=POSTGRES_DB=jobs", "--env=POSTGRES_PASSWORD_FILE=/password", f"--volume={password}:/password:ro", "postgres:17")
    ready = ["exec", "trial-db", "pg_isready", "--quiet", "--host=127.0.0.1"]
    wait("the database", lambda: podman(*ready, check=False).returncode == 0)
    return {"primacy-store": {"url": "postgresql://jobs:rosebud@db.example/jobs?sslmode=disable"}}


def documents(name, kind):
    everything = yaml.safe_load_all((contrib / "kubernetes" / name).read_text())
    return [document for document in everything if document["kind"] == kind]


def workload(name, kind="Deployment"):
    return documents(name, kind)[0]


def pods_of(name, names, secrets, aliases=()):
    return [Pod(workload(name), pod, here / "volumes", NETWORK, secrets, aliases) for pod in names]


def leaders(pods, path):
    return [pod for pod in pods if pod.get(8008, path) == 200]


def one_leads(pods, path):
    wait(f"one leads at {path}", lambda: len(leaders(pods, path)) == 1)
    return leaders(pods, path)[0]


def another_leads(pods, path, than, since):
    others = [pod for pod in pods if pod is not than]
    wait(f"another leads at {path}", lambda: leaders(others, path))
    took = time.monotonic() - since
    # Long before the lease could have ended.
    want(took < LEASE / 2, f"another leads only after {took:.1f} s")
    return took


def try_run(secrets):
    service = documents("leader.yaml", "Service")[0]["metadata"]["name"]
    pods = pods_of("run.yaml", ["scheduler-a", "scheduler-b"], secrets, [f"{service}.{NAMESPACE}.svc.cluster.local"])
    configs = {document["metadata"]["name"]: document["data"] for document in documents("leader.yaml", "ConfigMap")}
    proxy = pods_of("leader.yaml", ["proxy"], configs)[0]
    path = "/leader?election=scheduler"
    leader = one_leads(pods, path)
    wait("both are ready", lambda: all(pod.is_ready() for pod in pods))
    wait("the service works", lambda: "works 1" in leader.log("scheduler"))
    wait("the proxy leads to the leader", lambda: proxy.ask(8080, "/") == (200, leader.name))
    since = time.monotonic()
    leader.end()
    want("stops" in leader.log("scheduler"), f"the service was not asked to stop:\n{leader.log('scheduler')}")
    took = another_leads(pods, path, leader, since)
    say(f"run.yaml: the leader's pod ends in order, and another leads after {took:.1f} s")
    second = one_leads(pods, path)
    wait("the proxy leads to the next leader", lambda: proxy.ask(8080, "/") == (200, second.name))
    say(f"leader.yaml: the proxy leads to the next leader {time.monotonic() - since:.1f} s after the last one was told to end")
    clear()


def try_sidecar(secrets):
    pods = pods_of("sidecar.yaml", ["billing-a", "billing-b"], secrets)
    path = "/leader?election=billing"
    leader = one_leads(pods, path)
    wait("both are ready", lambda: all(pod.is_ready() for pod in pods))
    wait("the service works", lambda: "works" in leader.log("billing"))
    log = leader.log("billing")
    want(log.count("refused: Read-only file system") == 2, f"the service can write where the socket is:\n{log}")
    # Why it makes a folder of its own.
    straight = ["run", "--rm", "--network=none", f"--volume={leader.volumes}/agent:/run/primacy", PRIMACY, "agent", "--socket=/run/primacy/sock"]
    done = podman(*straight, check=False)
    want(done.returncode == 69 and "another socket in its place" in done.stderr, f"an emptyDir is taken: {done.stderr}")
    since = time.monotonic()
    podman("kill", "--signal=KILL", f"{leader.name}-billing")
    took = another_leads(pods, path, leader, since)
    say(f"sidecar.yaml: a killed service is followed after {took:.1f} s, by the proof of its process")
    leader.start(leader.containers["billing"])
    wait("the killed one waits again", lambda: leader.get(8008, "/candidate?election=billing") == 200)
    second = one_leads(pods, path)
    since = time.monotonic()
    second.end()
    took = another_leads(pods, path, second, since)
    say(f"sidecar.yaml: the leader's pod ends in order, and another leads after {took:.1f} s")
    # A side-car that is killed is started again, at the same socket.
    podman("kill", "--signal=KILL", f"{leader.name}-primacy")
    leader.start(leader.containers["primacy"])
    wait("it leads again after the lease", lambda: leaders([leader], path), seconds=4 * LEASE)
    say("sidecar.yaml: an agent that was killed takes its service again")
    clear()


def try_voters():
    names = [f"voter-{n}" for n in range(3)]
    certs = here / "certs"
    certs.mkdir(mode=0o700)
    os.chown(certs, 65532, 65532)
    podman("run", "--rm", "--network=none", f"--volume={certs}:/certs", PRIMACY, "peer", "certs", "/certs", *names, "web", "operator")
    files = {file.name: file.read_text() for file in certs.iterdir() if file.name not in ("ca.key", "ca.issued")}
    document = workload("voters.yaml", "StatefulSet")
    service = document["spec"]["serviceName"]
    voters = [Pod(document, name, here / "volumes", NETWORK, {"voters": files}, [f"{name}.{service}"]) for name in names]
    wait("all voters are ready", lambda: all(voter.is_ready() for voter in voters))
    mounted = podman("inspect", "--format={{json .Mounts}}", "voter-0-voter").stdout
    want("voter-0.key" in mounted and "voter-1.key" not in mounted, f"a voter sees another one's key: {mounted}")
    # The way that the file names.
    header = (contrib / "kubernetes" / "voters.yaml").read_text()
    store = next(line[1:].strip() for line in header.splitlines() if line.startswith("#   peers://"))
    candidate = ["run", "--rm", f"--network={NETWORK}", f"--volume={certs}:/certs:ro", f"--env=PRIMACY_STORE={store}", PRIMACY]
    led = podman(*candidate, "run", "--", "/usr/bin/primacy", "--version")
    want("leads" in led.stderr, f"nobody leads by the voters: {led.stderr}")
    # One of three may be lost.
    voters[0].end()
    led = podman(*candidate, "run", "--", "/usr/bin/primacy", "--version")
    want("leads" in led.stderr, f"nobody leads by two voters: {led.stderr}")
    say("voters.yaml: three voters know each other, and elect; also two of them")
    clear()


def try_compose():
    folder = here / "compose"
    folder.mkdir()
    file = shutil.copy(contrib / "compose" / "compose.yaml", folder)
    # The lines of its header.
    lines = [line[1:].strip() for line in pathlib.Path(file).read_text().splitlines() if line.startswith("#   ")]
    commands = [line for line in lines if not line.startswith("COPY")]
    want(len(commands) == 3, f"the header of the compose file has other commands: {commands}")
    subprocess.run(["sh", "-euc", "\n".join(commands)], cwd=folder, check=True)

    def compose(*args):
        done = subprocess.run(["podman-compose", "--project-name=trial", *args], cwd=folder, capture_output=True, text=True)
        want(done.returncode == 0, f"podman-compose {args}: {done.stdout}{done.stderr}")
        return done.stdout

    def logs(copy):
        done = podman("logs", copy, check=False)
        return done.stdout + done.stderr

    compose("up", "--detach", "--no-build")
    copies = {name: f"trial_{name}_1" for name in ("copy-1", "copy-2")}
    wait("one copy leads", lambda: any("works 1" in logs(copy) for copy in copies.values()), seconds=90)
    for name in ("trial_db_1", *copies.values()):
        wait(f"{name} is well", lambda name=name: podman("healthcheck", "run", name, check=False).returncode == 0)
    leader = next(copy for copy in copies.values() if "works 1" in logs(copy))
    other = next(copy for copy in copies.values() if copy != leader)
    want("works" not in logs(other), "both copies work")
    since = time.monotonic()
    podman("stop", "--time=15", leader)
    wait("the other copy works", lambda: "works 2" in logs(other))
    took = time.monotonic() - since
    want(took < LEASE / 2, f"the other copy works only after {took:.1f} s")
    say(f"compose.yaml: a copy that is stopped is followed after {took:.1f} s")
    clear()


def clear():
    podman("pod", "rm", "--all", "--force", "--time=0", check=False)
    for name in podman("ps", "--all", "--format={{.Names}}").stdout.split():
        if name != "trial-db":
            podman("rm", "--force", "--time=0", name, check=False)


def main():
    set_up()
    try:
        build_images()
        try_image()
        podman("network", "create", "--internal", NETWORK)
        secrets = start_database()
        try_run(secrets)
        try_sidecar(secrets)
        try_voters()
        try_compose()
    except Exception:
        for name in podman("ps", "--all", "--format={{.Names}}").stdout.split():
            done = podman("logs", "--tail=20", name, check=False)
            print(f"--- {name}\n{done.stdout}{done.stderr}")
        raise


main()
