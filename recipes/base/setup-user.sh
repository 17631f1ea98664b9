#!/bin/sh
# The user that commands of the E2B clients run as: a home directory, and sudo without a password.
set -eu
id user > /dev/null 2>&1 || useradd --create-home --shell /bin/bash user
echo 'user ALL=(ALL) NOPASSWD:ALL' > /etc/sudoers.d/user
chmod 0440 /etc/sudoers.d/user
