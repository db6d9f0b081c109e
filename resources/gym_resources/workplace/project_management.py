"""The project board: tasks with an owner, a list, a due date and a board."""

from __future__ import annotations

from gym_resources.workplace.office import Fields
from gym_resources.workplace.shared_parts import Desk, Given, action, delete_row, lookup, one_field, quoted
from gym_resources.workplace.tables import Tables

LISTS = ("Backlog", "In Progress", "In Review", "Completed")
BOARDS = ("Back end", "Front end", "Design")


class ProjectManagement(Desk):
    @lookup
    def project_management_get_task_information_by_id(
        self, task_id: Given = None, field: Given = None
    ) -> Fields | str:
        """Returns a field of a task: task_id, task_name, assigned_to_email, list_name, due_date or board."""
        return one_field(self.tables.tasks, "Task", task_id, field)

    @lookup
    def project_management_search_tasks(
        self,
        task_name: Given = None,
        assigned_to_email: Given = None,
        list_name: Given = None,
        due_date: Given = None,
        board: Given = None,
    ) -> list[Fields] | str:
        """Returns the tasks whose fields contain the given texts."""
        parts = {
            "task_name": task_name,
            "assigned_to_email": assigned_to_email,
            "list_name": list_name,
            "due_date": due_date,
            "board": board,
        }
        if not any(parts.values()):
            return "No search parameters provided."
        return self.tables.tasks.matching(parts)

    @action
    def project_management_create_task(
        self,
        task_name: Given = None,
        assigned_to_email: Given = None,
        list_name: Given = None,
        due_date: Given = None,
        board: Given = None,
    ) -> str:
        """Creates a task in Backlog, In Progress, In Review or Completed on the Back end, Front end or Design board, due YYYY-MM-DD, and returns its ID."""  # noqa: E501 - the model reads the first line
        if not (task_name and assigned_to_email and list_name and due_date and board):
            return "Missing task details."
        fields: Fields = {
            "task_name": task_name,
            "assigned_to_email": assigned_to_email.lower(),
            "list_name": list_name,
            "due_date": due_date,
            "board": board,
        }
        wrong = next(
            (wrong for name, value in fields.items() if (wrong := _wrong(self.tables, name, value or ""))), ""
        )
        return wrong or self.tables.tasks.add(fields)

    @action
    def project_management_delete_task(self, task_id: Given = None) -> str:
        """Deletes a task by its ID."""
        return delete_row(self.tables.tasks, "Task", task_id)

    @action
    def project_management_update_task(
        self, task_id: Given = None, field: Given = None, new_value: Given = None
    ) -> str:
        """Sets a field of a task: task_name, assigned_to_email, list_name, due_date or board."""
        if not (task_id and field and new_value):
            return "Task ID, field, or new value not provided."
        value = new_value.lower() if field == "assigned_to_email" else new_value
        if wrong := _wrong(self.tables, field, value):
            return wrong
        if self.tables.tasks.get(task_id) is None:
            return "Task not found."
        if field not in self.tables.tasks.columns:
            return "Field not valid."
        self.tables.tasks.update(task_id, field, value)
        return "Task updated successfully."


def _wrong(tables: Tables, name: str, value: str) -> str:
    """The error in a field's value; empty if it is valid."""
    if name == "assigned_to_email" and value not in tables.tasks.values(name):
        return "Assignee email not valid. Please choose from the list of team members."
    if name == "list_name" and value not in LISTS:
        return f"List not valid. Please choose from: {quoted(LISTS)}."
    if name == "board" and value not in BOARDS:
        return f"Board not valid. Please choose from: {quoted(BOARDS)}."
    return ""
