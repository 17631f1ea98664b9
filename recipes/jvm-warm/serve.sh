#!/bin/sh
# Runs the service on port $1, in the foreground. The heap is committed and small: every page it writes belongs
# to one fork. The serial collector has no threads that write while nothing happens.
exec java -XX:+UseSerialGC -Xms128m -Xmx128m -XX:-UsePerfData -cp /opt/service/classes Service "$1"
