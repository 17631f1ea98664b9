/** Where `connect()` of the entry for Node finds the daemon. */

/** Options of `connect()`. */
export type ConnectOptions = {
  /** Unix socket of the daemon; default: FORKD_SOCKET, or the socket of the daemon of this user. */
  socket?: string | undefined;
  /** Address of the daemon, such as "https://127.0.0.1:8889"; default: FORKD_URL. */
  url?: string | undefined;
  /** Token or key for `url`; default: FORKD_TOKEN, or the local daemon's token in its data directory. */
  token?: string | undefined;
  /** PEM file with the certificates to trust for an https `url`; default: FORKD_CA. */
  caFile?: string | undefined;
  /** Data directory of the daemon; default: FORKD_DATA_DIR, or the directory of this user. */
  dataDir?: string | undefined;
};
