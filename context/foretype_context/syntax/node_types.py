"""Which node types define, import or hold something, over all grammars: names that no two of them use differently."""

from __future__ import annotations

from typing import Final

from tree_sitter import Node

from foretype_context.syntax.parsing import node_text


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FUNCTIONS: Final = _words(
    "function_definition function_declaration generator_function_declaration method_definition method_declaration "
    "constructor_declaration function_item method singleton_method function_signature method_signature "
    "abstract_method_signature function_signature_item"
)
CLASSES: Final = _words(
    "class_definition class_declaration abstract_class_declaration interface_declaration enum_declaration record_declaration "
    "struct_item enum_item trait_item union_item impl_item mod_item class_specifier struct_specifier enum_specifier "
    "union_specifier namespace_definition namespace_declaration struct_declaration class module trait_declaration "
    "annotation_type_declaration internal_module"
)
CONSTANTS: Final = _words(
    "const_item static_item const_spec var_spec variable_declarator type_spec type_alias type_alias_declaration "
    "type_item type_alias_statement type_definition alias_declaration preproc_def preproc_function_def macro_definition "
    "const_element delegate_declaration"
)
FUNCTION_VALUES: Final = _words("arrow_function function_expression function generator_function class")
IMPORTS: Final = _words(
    "import_statement import_from_statement future_import_statement import_declaration use_declaration using_directive "
    "preproc_include package_declaration package_clause extern_crate_declaration namespace_use_declaration"
)
WRAPPERS: Final = _words("decorated_definition export_statement template_declaration")
BODIES: Final = _words(
    "block class_body interface_body enum_body declaration_list field_declaration_list body_statement statement_block "
    "enum_body_declarations enum_variant_list ordered_field_declaration_list enumerator_list enum_member_declaration_list"
)
NEVER: Final = _words(
    "comment line_comment block_comment string argument_list arguments dictionary list object array parameters "
    "parameter_list formal_parameters compound_statement call call_expression expression_list"
)

_INNER: Final = ("declarator", "name", "field", "method")
_NAME_DEPTH: Final = 8
_NAME_CHARS: Final = 120


def defined_name(node: Node, source: bytes) -> str:
    """The name that a definition gives, or empty: C hides it under declarators, Rust's `impl` names a type, Lua's stands behind its table's."""
    found = node.child_by_field_name("name")
    if found is None:
        found = node.child_by_field_name("type") if node.type == "impl_item" else node.child_by_field_name("declarator")
    for _ in range(_NAME_DEPTH):
        if found is None or found.named_child_count == 0:
            break
        inner = next(filter(None, map(found.child_by_field_name, _INNER)), None)
        found = inner or found.named_children[0]
    name = node_text(found, source)
    return name if len(name) <= _NAME_CHARS and "\n" not in name else ""
