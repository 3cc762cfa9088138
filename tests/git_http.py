"""A Git server over HTTP for the tests, here and in a pod: python3 git_http.py FOLDER PORT [USER:PASSWORD] [--dumb] [--tls=FILE]

It prints its port, and then each request's path. With --dumb it only gives files, as a plain web server does. The file of --tls has a
certificate and its key.
"""

import base64
import http.server
import os
import ssl
import subprocess
import sys


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the repositories below the folder by `git http-backend`, a CGI program."""

    folder = login = ""
    dumb = False
    protocol_version = "HTTP/1.1"

    def refused(self):
        """Ask for the password, unless it was given."""
        given = self.headers.get("Authorization", "")
        if not self.login or given == "Basic " + base64.b64encode(self.login.encode()).decode():
            return False
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="git"')
        self.send_header("Content-Length", "0")
        self.end_headers()
        return True

    def do_GET(self):
        if self.refused():
            return
        if self.dumb:
            super().do_GET()
        else:
            self.backend(b"")

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self.refused():
            self.backend(body)

    def backend(self, body):
        path, _, query = self.path.partition("?")
        env = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": self.folder,
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }
        made = subprocess.run(["git", "http-backend"], env=env, input=body, stdout=subprocess.PIPE).stdout
        head, _, answer = made.partition(b"\r\n\r\n")
        lines = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self.send_response(int(lines.pop("Status", "200").split()[0]))
        for name, value in lines.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, form, *args):
        print(self.path, flush=True)


def main():
    """Serve until killed."""
    arguments = [one for one in sys.argv[1:] if not one.startswith("--")]
    Handler.folder, Handler.dumb = arguments[0], "--dumb" in sys.argv
    Handler.login = (arguments[2:] or [""])[0]
    os.chdir(Handler.folder)
    server = http.server.ThreadingHTTPServer(("", int(arguments[1])), Handler)
    for file in [one[6:] for one in sys.argv if one.startswith("--tls=")]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
