"""gRPC around the services: every method of the contract passes through one Router, whatever it does.

methods     what the contract says of each method
lanes       threads for short calls and for long ones, each of which takes a bounded number
turns       who of those computes next, and how much one caller may hold
router      identity, role, limits, the service, errors as statuses
call        what is known of one call, from its start to its log line
answers     answers that were given before
stalled     ends streams whose caller neither sends nor reads
"""
