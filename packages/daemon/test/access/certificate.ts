/** Certificates for tests. */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

/** A self-signed certificate for this machine. */
export async function makePair(dir: string, name: string): Promise<{ cert: string; key: string }> {
  const [cert, key] = [join(dir, `${name}.crt`), join(dir, `${name}.key`)];
  const names = "subjectAltName=DNS:localhost,IP:127.0.0.1";
  const curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"];
  const files = ["-keyout", key, "-out", cert];
  await run("openssl", [
    "req",
    "-x509",
    ...curve,
    "-nodes",
    "-days",
    "2",
    "-subj",
    `/CN=${name}`,
    "-addext",
    names,
    ...files,
  ]);
  return { cert, key };
}
