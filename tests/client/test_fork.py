"""After a fork: parent and child share no lock, no name and no connection, whatever other threads were doing."""

from __future__ import annotations

import subprocess
import sys

IN_CHILD = """
import os, signal, socket, sys, threading
from tenure.client import Client, ClientSettings, Request, Response

def in_child(work, meanwhile=lambda: None):
    'Return the result of work() in a forked process, as text; empty where it hangs.'
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        os.write(theirs, str(work()).encode())
        os._exit(0)
    os.close(theirs)
    meanwhile()
    said = os.read(ours, 10_000).decode()
    os.waitpid(child, 0)
    return said
"""


def run(script: str, *args: str) -> list[str]:
    """The lines that a script prints."""
    command = [sys.executable, "-W", "ignore", "-c", IN_CHILD + script, *args]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    return done.stdout.splitlines()


PRODUCING = """
parent = os.getpid()
held, release = threading.Event(), threading.Event()

class Wire:
    def send(self, request):
        if os.getpid() == parent:
            held.set()
            release.wait()
        bodies.append(request.body)
        return Response(200, b'{"topic":"q","first_seq":7,"last_seq":7,"count":1}')
    def close(self): pass

bodies = []
client = Client(wire=Wire())
producer = client.producer("q")
leading = threading.Thread(target=producer.put, args=["parent"])
leading.start()
held.wait()
with producer._lock, client._context.lanes._lock:
    print(in_child(lambda: (producer.put("child"), len(bodies), b"parent" in bodies[0], producer.close())))
    print(in_child(lambda: (producer.flush(), producer._batcher.idle)))
release.set()
leading.join()
print(len(bodies), b"parent" in bodies[0], producer._batcher.idle)
"""


def test_a_producer_works_in_the_child_while_a_thread_of_the_parent_sends_and_others_hold_its_locks() -> None:
    assert run(PRODUCING) == ["(7, 1, False, None)", "(None, True)", "1 True True"]


CONNECTING = """
from tenure.client.transport.blocking import SocketWire

def serve(connection, address):
    'Answers every request with the port that it came from.'
    with connection:
        while connection.recv(65536):
            body = b"%d" % address[1]
            connection.sendall(b"HTTP/1.1 200 OK\\r\\ncontent-length: %d\\r\\n\\r\\n%b" % (len(body), body))

listening = socket.create_server(("127.0.0.1", 0))

def accept():
    while True:
        threading.Thread(target=serve, args=listening.accept(), daemon=True).start()

threading.Thread(target=accept, daemon=True).start()
wire = SocketWire(f"http://127.0.0.1:{listening.getsockname()[1]}", settings=ClientSettings(connections_max=1))
port = lambda: int(wire.send(Request("GET", "/")).body)
first = port()
with wire._calls._changed:  # as a thread that takes or gives back a connection
    theirs = int(in_child(lambda: port() if port() == port() else 0))
print(theirs not in (0, first), port() == first)
wire._calls.get(1)
print(in_child(port) != "")  # the only place was in use, by a thread that is not there
"""


def test_a_client_has_connections_of_its_own_in_the_child() -> None:
    assert run(CONNECTING) == ["True True", "True"]


STREAMING = """
listening = socket.create_server(("127.0.0.1", 0))
client = Client(f"http://127.0.0.1:{listening.getsockname()[1]}")
feed, unopened = client.work("q"), client.work("q")
reading = threading.Thread(target=list, args=[feed])
reading.start()
connection, _ = listening.accept()
connection.recv(65536)
head = b"HTTP/1.1 200 OK\\r\\ncontent-type: text/event-stream\\r\\ntransfer-encoding: chunked\\r\\n\\r\\n"
connection.sendall(head + b"6\\r\\n: hb\\n\\n\\r\\n")
while not (feed.source.line.is_open and feed.source.line._stream._stream._busy.locked()):
    pass
held, told = os.pipe()

def close_and_look():
    feed.close()
    print("the server sees the end:", connection.recv(1) == b"")
    reading.join()
    os.write(told, b".")

print(in_child(lambda: (os.read(held, 1), list(feed), unopened.source.line.closed), close_and_look))
"""


def test_a_stream_that_the_parent_closes_ends_although_a_child_lives_and_the_childs_copy_ends_too() -> None:
    assert run(STREAMING) == ["the server sees the end: True", "(b'.', [], False)"]


NAMES = """
made_up, given = Client("http://127.0.0.1:1"), Client("http://127.0.0.1:1", node="me")
names = lambda: (made_up.node, made_up._context.claim_id().rpartition("-")[0], given.node)
print(*names())
print(*eval(in_child(names)))
"""


def test_names_that_were_made_up_are_made_up_again_and_those_given_are_kept() -> None:
    (node, claims, given), (other_node, other_claims, same) = (line.split() for line in run(NAMES))
    assert node != other_node
    assert claims != other_claims
    assert given == same == "me"
