"""A chat server that answers by a script, for the quality pool of a real gateway."""

import json
import threading
from contextlib import ExitStack

from json_server import QuietHandler, listening

POOL = """
[pool.quality]
url = "{url}"
"""


class ChatServer:
    """OpenAI's chat as far as the gateway uses it. `answer` is what it says, in pieces; before each it waits for `go`."""

    def __init__(self):
        self.answer = ["It ", "adds ", "two numbers."]
        self.bodies = []
        self.go = threading.Event()
        self.go.set()
        self.asked = threading.Event()
        self.left = threading.Event()
        """The gateway hung up before the answer was over."""
        chat = self

        class Handler(QuietHandler):
            def do_GET(self):
                self.say(200, {"object": "list", "data": [{"id": "instruct"}]})

            def do_POST(self):
                chat.bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                chat.asked.set()
                try:
                    for piece in chat.answer:
                        self._event({"choices": [{"index": 0, "delta": {"content": piece}}]})
                        while not chat.go.wait(0.02):  # a comment now and then, to see whether anybody is there
                            self.wfile.write(b": here\n\n")
                    self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
                    usage = {"prompt_tokens": 9, "completion_tokens": len(chat.answer)}
                    self._event({"choices": [], "usage": usage})
                    self.wfile.write(b"data: [DONE]\n\n")
                except OSError:
                    chat.left.set()

            def _event(self, data):
                self.wfile.write(b"data: " + json.dumps(data).encode() + b"\n\n")
                self.wfile.flush()

        self._listening = ExitStack()
        self._port = self._listening.enter_context(listening(Handler)).server_port

    @property
    def pool(self):
        """The table of a gateway's file that names this server."""
        return POOL.format(url=f"http://127.0.0.1:{self._port}/v1")

    def again(self, *answer):
        """Forget what was asked, and say this from now on."""
        self.answer = list(answer) or self.answer
        self.bodies.clear()
        for event in (self.asked, self.left):
            event.clear()
        self.go.set()

    def close(self):
        self.go.set()
        self._listening.close()
