/** The setting `listen`, and which machines can reach the daemon. Pure. */

export type ListenAddress = { readonly host: string; readonly port: number };

/** An IP address or "localhost" with a port. Other names do not show which machines can reach them. */
export const listenPattern =
  /^(off|(localhost|(\d{1,3}\.){3}\d{1,3}|\[[0-9a-f:.]+\]):(\d{1,4}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5]))$/i;

export function parseListen(listen: string): ListenAddress | undefined {
  if (listen === "off") return undefined;
  const colon = listen.lastIndexOf(":");
  return { host: listen.slice(0, colon).replace(/^\[|\]$/g, ""), port: Number(listen.slice(colon + 1)) };
}

/** Whether only this machine can reach the address. */
export function isLoopback(host: string): boolean {
  return /^(localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|::1)$/i.test(host);
}

type Exposure = {
  readonly listen: string;
  readonly auth: "token" | "off";
  readonly tls_cert?: string | undefined;
  readonly tls_key?: string | undefined;
  readonly allow_plain_http: boolean;
};

/** Why the daemon must not start with these settings, and the remedy; undefined if it may start. */
export function exposureProblem(settings: Exposure): string | undefined {
  const { listen, auth, tls_cert: cert, tls_key: key } = settings;
  if ((cert === undefined) !== (key === undefined)) {
    const [given, missing] = cert === undefined ? ["tls_key", "tls_cert"] : ["tls_cert", "tls_key"];
    return `${missing}: must be given too, because ${given} is; give both or neither`;
  }
  const address = parseListen(listen);
  if (address === undefined || isLoopback(address.host)) return undefined;
  if (auth === "off") {
    return `auth: must not be "off" while listen is ${listen}, which other machines can reach; unset auth, or listen on 127.0.0.1`;
  }
  if (cert === undefined && !settings.allow_plain_http) {
    return `listen: other machines can reach ${listen}, and without TLS the network can read every token; set tls_cert and tls_key, or allow_plain_http=true behind a proxy with TLS, or listen on 127.0.0.1`;
  }
  return undefined;
}
