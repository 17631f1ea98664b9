/** What servers outside, servers in guests and their clients agree on. */
export const domain = "bench.test";
export const serverPorts = { dns: 53, http: 80, raw: 7000 } as const;
export const rawVerbs = { down: 1, up: 2 } as const;
/** in a guest: on all its addresses, and on its loopback address only */
export const guestPorts = { everywhere: 8000, loopback: 8001 } as const;
