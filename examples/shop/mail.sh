#!/bin/sh
# Sends the mail of an order, which the job's body names. Failed jobs are tried again.
read -r order
sleep 0.05
echo "sent the mail of $order"
