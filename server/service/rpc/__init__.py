"""gRPC around the services: every method, health and reflection too, passes through one Router, whatever it does.

methods     what the contract says of each method, and the standard services
lanes       threads for short calls, for long ones and for those without a token, each of which takes a bounded number
turns       who of those computes next, and how much one caller may hold
router      identity, role, limits, the service, errors as statuses
call        what is known of one call, from its start to its log line
answers     answers that were given before
health      the standard services
overseer    ends calls that wait for their caller too long, or whose token was withdrawn
"""
