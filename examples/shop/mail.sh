#!/bin/sh
# Sends the mail of an order: the job's body names it. What fails is tried again.
read -r order
sleep 0.05
echo "sent the mail of $order"
