"""The world of ``indirect_prompt_injection``: records, the tools that read and change them, the injection."""
