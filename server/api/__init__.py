"""The HTTP API under ``/api/memory``, described as OpenAPI: thin over ``memory_core``, validated at its edge."""
