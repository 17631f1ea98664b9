/**
 * Trust stores. Guests get the host's roots, the host's extra CAs and our CA in one file: a company's proxy
 * may sign TLS again on the way out, and then a guest needs the same CAs as its host.
 */
import { X509Certificate } from "node:crypto";
import { readFile } from "node:fs/promises";
import { rootCertificates } from "node:tls";
import { isErrno } from "@forkd/base";

/** Where distributions keep the bundle; the first that exists is used. */
const systemBundles = [
  "/etc/ssl/certs/ca-certificates.crt",
  "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
  "/etc/pki/tls/certs/ca-bundle.crt",
  "/etc/ssl/ca-bundle.pem",
  "/etc/ssl/cert.pem",
];
const maxBundleBytes = 16 * 1024 * 1024;

/** Where guests find their bundle. */
const guestBundlePath = "/run/forkd/ca-bundle.pem";

/**
 * The variables that make programs in a guest use the bundle. The system's store is not enough: each of these
 * tools looks elsewhere. Always the whole bundle, because most of them replace their own list by it.
 */
export function guestTrustVariables(path: string = guestBundlePath): Record<string, string> {
  const names = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "HTTPLIB2_CA_CERTS",
    "NODE_EXTRA_CA_CERTS",
    "DENO_CERT",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "NIX_SSL_CERT_FILE",
  ];
  // uv has a list built in and uses the file only with this variable.
  return { ...Object.fromEntries(names.map((name) => [name, path])), UV_NATIVE_TLS: "1" };
}

type TrustSources = {
  /** bundles to try in order; default: `SSL_CERT_FILE` and the usual places */
  readonly bundles?: readonly string[] | undefined;
  /** CAs in addition; default: `NODE_EXTRA_CA_CERTS` */
  readonly extra?: string | undefined;
};

/**
 * The certificates that this host trusts, as PEM, each once. Uses Node's own list if the host has no bundle.
 * Entries that are not valid certificates are left out.
 */
export async function systemRoots(sources: TrustSources = {}): Promise<string[]> {
  const { SSL_CERT_FILE: chosen, NODE_EXTRA_CA_CERTS: variable } = process.env;
  const bundles = sources.bundles ?? [...(chosen === undefined ? [] : [chosen]), ...systemBundles];
  const extra = sources.extra ?? variable;
  let roots: string[] = [];
  for (const path of bundles) {
    roots = await readCertificates(path);
    if (roots.length > 0) break;
  }
  if (roots.length === 0) roots = certificatesIn(rootCertificates.join("\n"));
  const extras = extra === undefined || extra === "" ? [] : await readCertificates(extra);
  return [...new Set([...roots, ...extras])];
}

/** The bundle for guests: the roots of the host and, last, the certificate of our CA. */
export async function buildBundle(caPem: string, sources: TrustSources = {}): Promise<string> {
  const all = [...(await systemRoots(sources)), ...certificatesIn(caPem)];
  return [...new Set(all)].join("");
}

/** Empty if there is no such file or this user may not read it. */
async function readCertificates(path: string): Promise<string[]> {
  try {
    const bytes = await readFile(path);
    return bytes.length > maxBundleBytes ? [] : certificatesIn(bytes.toString("latin1"));
  } catch (error) {
    if (isErrno(error, "ENOENT", "ENOTDIR", "EACCES", "EISDIR")) return [];
    throw error;
  }
}

/** In one form, so that equal certificates are equal texts. Comments between them are left out. */
function certificatesIn(text: string): string[] {
  const blocks = text.match(
    /-----BEGIN (?:TRUSTED )?CERTIFICATE-----[^-]+-----END (?:TRUSTED )?CERTIFICATE-----/g,
  );
  return (blocks ?? []).flatMap((block) => {
    try {
      return [new X509Certificate(block).toString()];
    } catch {
      // One unreadable entry must not cost a guest all the others.
      return [];
    }
  });
}
