"""What the handlers of ACLs, delegation tokens and SCRAM credentials share. Listeners are plaintext, without SASL."""

NO_AUTHORIZER = "no authorizer is configured: ACLs are not supported"
"""The error message of SECURITY_DISABLED."""

USER, ANONYMOUS = "User", "ANONYMOUS"
"""Type and name of the principal of each client of a plaintext listener (KafkaPrincipal.ANONYMOUS)."""

MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""Names of SCRAM mechanisms, by their number in requests (org.apache.kafka.clients.admin.ScramMechanism)."""
