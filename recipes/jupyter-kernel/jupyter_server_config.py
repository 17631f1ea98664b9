"""Only the guest's own programs and forkd reach the server, and a port of forkd has its own token."""
c = get_config()  # noqa: F821
c.ServerApp.ip = "127.0.0.1"
c.ServerApp.port = 8888
c.ServerApp.port_retries = 0
c.ServerApp.root_dir = "/root/notebooks"
c.ServerApp.open_browser = False
c.ServerApp.allow_root = True
c.ServerApp.token = ""
c.ServerApp.password = ""
c.ServerApp.disable_check_xsrf = True
c.ServerApp.allow_remote_access = True
c.ServerApp.allow_origin = "*"
c.ServerApp.terminals_enabled = False
# An emulated processor imports slowly.
c.MappingKernelManager.kernel_info_timeout = 300
