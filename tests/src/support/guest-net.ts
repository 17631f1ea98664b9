/** Small network clients that run in the warm Python of a sandbox. */
import type { Sandbox } from "@forkd/sdk";

const prelude = `
import socket, ssl, urllib.request, urllib.error, json
class Once(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *a, **k): return None
def fetch(url, headers={}, trusted=True, data=None, timeout=20):
    context = ssl.create_default_context() if trusted else ssl._create_unverified_context()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), Once, urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(urllib.request.Request(url, headers=headers, data=data), timeout=timeout) as r:
            return [r.status, r.read().decode()]
    except urllib.error.HTTPError as e:
        return [e.code, e.read().decode()]
    except Exception as e:
        return [0, type(e).__name__ + ": " + str(e)]
def dial(host, port, send=None, timeout=20):
    try:
        with socket.create_connection((host, port), timeout=timeout) as s:
            if send is not None: s.sendall(send.encode())
            return s.recv(4096).decode() or "closed"
    except Exception as e:
        return type(e).__name__
def resolve(name):
    try: return socket.getaddrinfo(name, 80, socket.AF_INET)[0][4][0]
    except Exception as e: return type(e).__name__
`;

/** The value of a Python expression, as JSON. */
export async function python(sandbox: Sandbox, expression: string): Promise<unknown> {
  const code = `import builtins\nif not hasattr(builtins, "_net"):\n    builtins._net = {}\n    exec(${JSON.stringify(prelude)}, builtins._net)\nprint(builtins._net["json"].dumps(eval(${JSON.stringify(expression)}, builtins._net)))`;
  const { stdout, error } = await sandbox.eval(code, { timeoutMs: 120_000 });
  if (error) throw new Error(`${expression}: ${JSON.stringify(error)}`);
  return JSON.parse(stdout);
}

export async function fetchIn(
  sandbox: Sandbox,
  url: string,
  headers: Record<string, string> = {},
  /** whether the certificate of the server is verified */
  trusted = true,
): Promise<{ status: number; body: string }> {
  const call = `fetch(${JSON.stringify(url)}, ${JSON.stringify(headers)}, ${trusted ? "True" : "False"})`;
  const [status, body] = (await python(sandbox, call)) as [number, string];
  return { status, body };
}

/** What the peer answered, or the name of the Python exception. */
export async function dialIn(sandbox: Sandbox, host: string, port: number, send?: string): Promise<string> {
  const argument = send === undefined ? "" : `, ${JSON.stringify(send)}`;
  return (await python(sandbox, `dial(${JSON.stringify(host)}, ${port}${argument})`)) as string;
}

export async function resolveIn(sandbox: Sandbox, name: string): Promise<string> {
  return (await python(sandbox, `resolve(${JSON.stringify(name)})`)) as string;
}
