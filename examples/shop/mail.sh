#!/bin/sh
# Sends the mail for the order named in the job's body. Failed jobs are tried again.
read -r order
sleep 0.05
echo "sent the mail of $order"
