"""Mounts that share: what the origin sends, what the store is asked, and how long a reader waits."""

import os
import signal
import time

from fleet import Films, Node, fleet, settled, sharing, wait_until_sharing
from rows import Row
from stores import GATEWAYS
from systems import Mediafs, Rclone, forget_pages

NODES = 8
FILMS, SIZE = 8, int(os.environ.get("FLEET_MIB", "256")) << 20
# Slower than what the store gives each of eight nodes on two processors, about 18 MB/s: a node that has to wait for the
# store would else have a second, faster way, which no fleet has that needs a store.
LINE = 15e6
NEAR = 0.01
EACH = 5  # seconds between two kills or stops, and what a stop lasts
_films = []  # made once


def films():
    if not _films:
        _films.append(Films(FILMS, SIZE))
    return _films[0]


def fleet_cold(results, repetition):
    """All nodes read the list at once; then a ninth one does; then the first reads again what it has."""
    del repetition
    media = films()
    with sharing(NODES, media.media(), latency=NEAR, line=LINE) as (nodes, origin, store):
        asked = store.requests()
        nodes.read(media)
        found = nodes.compared(media.bytes)
        settled(nodes.members)
        sent = origin.totals()["bytesSent"]
        results.add("cold-bytes", "mediafs", sent / media.bytes)
        results.add("cold-wrong", "mediafs", sum(one["wrong"] for one in found))
        results.add("cold-wait", "mediafs", max(one["longest"] for one in found))
        results.add("cold-rate", "mediafs", media.bytes / max(one["seconds"] for one in found))
        kinds = store.requests() - asked
        results.add("cold-requests", "mediafs", kinds.total() / NODES / (media.bytes / (1 << 30)))
        results.remarks.append(f"Requests of the {NODES} cold nodes, of each kind: {listed(kinds)}.")

        late = nodes.add(Node(store.endpoint()), origin)
        wait_until_sharing(late)
        nodes.read(media, members=[late])
        found = nodes.compared(media.bytes)
        results.add("ninth-bytes", "mediafs", origin.totals()["bytesSent"] - sent)
        results.add("ninth-wrong", "mediafs", sum(one["wrong"] for one in found))

        first = nodes.members[0]
        # A node that completes a file asks the store for its digests, also the late one.
        for node in nodes.members:
            for name in media.names:
                node.complete(name)
        time.sleep(2)
        # Each node lists the others once a minute, whatever it reads: one of three passes is without that.
        passes = []
        while len(passes) < 3 and 0 not in passes:
            for name in media.names:
                descriptor = os.open(first.path(name), os.O_RDONLY)
                forget_pages(descriptor)
                os.close(descriptor)
            asked = store.requests()
            nodes.read(media, members=[first])
            nodes.compared(media.bytes)
            kinds = store.requests() - asked
            passes.append(kinds.total())
            if kinds:
                results.remarks.append(f"Requests while the first node read what it has stored: {listed(kinds)}.")
        results.add("stored-requests", "mediafs", min(passes))


def listed(kinds):
    return ", ".join(f"{kind} {count:,}" for kind, count in kinds.most_common())


def fleet_apart(results, repetition):
    """Two nodes that do not share read a file at once; what comes of that does not depend on its size."""
    del repetition
    media = Films(1, 64 << 20)
    for kind, label in ((Mediafs, "without sharing"), (Rclone, "rclone")):
        with fleet([kind(), kind()], media.media(), latency=NEAR, line=LINE) as (nodes, origin):
            nodes.read(media)
            found = nodes.compared(media.size)
            results.add("cold-bytes", label, origin.totals()["bytesSent"] / media.size * NODES / 2)
            results.add("cold-rate", label, media.size / max(one["seconds"] for one in found) * 2 / NODES)


def fleet_failing(results, repetition):
    """All nodes read the list at once, while they are killed and stopped in turns; one gateway is killed, too."""
    del repetition
    media = films()
    part = min(media.size, int(8 * LINE / NODES) >> 20 << 20)
    with fleet([Mediafs()], media.media(1), latency=NEAR, line=LINE / NODES) as (nodes, _):
        nodes.read(media, media.names[:1], part=part)
        [alone] = nodes.compared(part)
    results.add("failing-wait", "without sharing", alone["longest"])
    with sharing(NODES, media.media(), latency=NEAR, line=LINE) as (nodes, origin, store):
        readers = nodes.read(media)
        harm = Harm(nodes.members, store)
        while any(reader.is_running() for reader in readers):
            time.sleep(0.05)
            harm.look()
        harm.end()
        found = nodes.compared(media.bytes)
        results.add("failing-bytes", "mediafs", origin.totals()["bytesSent"] / media.bytes)
        results.add("failing-wrong", "mediafs", sum(one["wrong"] for one in found))
        # A node that is stopped cannot answer: that is not the fleet's.
        waits = [(took - harm.stopped(index, asked, took), index, asked)
                 for index, one in enumerate(found) for asked, took in one["waits"]]
        longest, index, asked = max(waits)
        results.add("failing-wait", "mediafs", max(0, longest - alone["longest"]),
                    note=f"{longest:.2f} s at node {index}, {asked - harm.begin:.1f} s; "
                         f"{sum(wait > 2 for wait, _, _ in waits)} waits over 2 s; {harm.told}")
        results.add("failing-kills", "mediafs", len(harm.told))


class Harm:
    """Each 5 s it kills or stops the next node's server. After 12 s it kills a gateway, and starts it again a second
    later, as a supervisor does."""

    def __init__(self, nodes, store):
        self.nodes, self.store = nodes, store
        self.begin = time.monotonic()
        self.next, self.due = 0, self.begin + EACH
        self.stops = []  # node, from, to
        self.told = []
        self.gateway = [(self.begin + 12.0, self.store.kill), (self.begin + 13.0, self.store.start)]

    def look(self):
        now = time.monotonic()
        if self.gateway and now >= self.gateway[0][0]:
            self.gateway.pop(0)[1](GATEWAYS[1])
        if now < self.due:
            return
        self.end()
        self.due = now + EACH
        index = self.next % len(self.nodes)
        is_kill = self.next % 2 == 0
        self.next += 1
        if self.nodes[index].signal(signal.SIGKILL if is_kill else signal.SIGSTOP):
            self.told.append(f"{'kill' if is_kill else 'stop'} {index} at {now - self.begin:.1f} s")
            if not is_kill:
                self.stops.append((index, now, None))

    def end(self):
        """Has the node that is stopped go on."""
        if self.stops and self.stops[-1][2] is None:
            index, start, _ = self.stops.pop()
            self.nodes[index].signal(signal.SIGCONT)
            self.stops.append((index, start, time.monotonic()))

    def stopped(self, index, asked, took):
        """How many of the seconds of a read the node was stopped."""
        return sum(max(0, min(asked + took, end) - max(asked, start))
                   for node, start, end in self.stops if node == index)


LIST = f"{FILMS} files of {SIZE >> 20} MiB"
ROWS = [
    Row("cold-bytes", f"{NODES} nodes read {LIST} at once: bytes from the origin / list", "", goal=1.02, absolute=True,
        measure=fleet_cold,
        how=f"All read all files in the list's order, 128 KiB at a time, and compare each read. The origin sends "
            f"{LINE / 1e6:.0f} MB/s in all, {NEAR * 1000:.0f} ms a request. Without sharing, and for rclone, two nodes "
            f"read a file at once; {NODES} nodes are computed from them."),
    Row("cold-wrong", "… wrong bytes", "", limit=0, goal=0, worst=True),
    Row("cold-rate", "… rate of the slowest node", "B/s", limit=LINE, more=True, measure=fleet_apart),
    Row("cold-wait", "… longest wait of a read", "s"),
    Row("cold-requests", "… requests to the store, a GiB and node", "", goal=600, absolute=True,
        how="As both gateways of SeaweedFS count them, until all is stored."),
    Row("stored-requests", "… requests to the store for what a node has stored", "", limit=0, goal=0, worst=True,
        how="The first node reads its copies again, when all are verified, and the kernel has forgotten them: the "
            "least of up to three passes, as each node lists the others once a minute."),
    Row("ninth-bytes", "A ninth node later: bytes from the origin", "", limit=0, goal=0, worst=True,
        how="It reads and compares all files."),
    Row("ninth-wrong", "… wrong bytes", "", limit=0, goal=0, worst=True),
    Row("failing-bytes", f"The same, a node killed or stopped each {EACH} s, a gateway once: bytes / list", "",
        goal=1.05, absolute=True, measure=fleet_failing,
        how=f"In turns a server gets SIGKILL (its helper starts another one) and SIGSTOP for {EACH} s. After 12 s one "
            "of the two gateways is killed; it is started again a second later."),
    Row("failing-wrong", "… wrong bytes", "", limit=0, goal=0, worst=True),
    Row("failing-wait", "… longest wait of a read, beyond that of a single node", "s", goal=3, absolute=True,
        worst=True,
        how="Without what a node was stopped itself. The single node does not share, and has an eighth of the line."),
    Row("failing-kills", "… kills and stops", ""),
]
