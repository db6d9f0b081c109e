"""What workers say to each other, and the OpenAI Responses API objects that they carry.

Every message is a frozen msgspec struct in JSON. Four rules let the format grow: unknown fields are
ignored, new fields have defaults, no field changes its type, no tag is used twice. Rows and response
items travel as `msgspec.Raw`: who only passes them on never decodes them, and their bytes stay as they
were.
"""
