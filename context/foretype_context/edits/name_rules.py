"""Where names are declared and how far they are seen, as one table for the languages whose references are followed.

Places are `parent` or `parent.field` of a name in tree-sitter's tree. What no rule can tell for certain poisons a name: nobody follows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from foretype_context.edits.walking import node_kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRules:
    """One language.

    Attributes:
        names: node types that name something that is declared in a scope.
        declares: places where a name is declared.
        declares_outside: places where the name is declared in the scope around the node that it names.
        patterns: places through which a declaration reaches a name: `for (a, b) in …`.
        others: places where such a node is no name of a scope (attributes, labels, keywords of calls).
        poisons: places whose names are not followed at all.
        scopes: node types that open a scope.
        functions: those of them to which hoisted declarations belong; a body right below one is the same scope.
        bodies: node types of such a body.
        before: places of what is evaluated before the scope around it begins.
        hoisted: node types of declarations that belong to the function, wherever in it they stand.
        members: scopes whose names are members of what they make.
        unseen: scopes whose names are not seen in the functions inside (Python's classes).
        shorthands: node types that are name and key at once: `{width}` becomes `{width: size}`.
    """

    names: frozenset[str]
    declares: frozenset[str]
    declares_outside: frozenset[str] = frozenset()
    patterns: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()
    poisons: frozenset[str] = frozenset()
    scopes: frozenset[str]
    functions: frozenset[str]
    bodies: frozenset[str] = frozenset()
    before: frozenset[str] = frozenset()
    hoisted: frozenset[str] = frozenset()
    members: frozenset[str] = frozenset()
    unseen: frozenset[str] = frozenset()
    shorthands: frozenset[str] = frozenset()


_PYTHON: Final = NameRules(
    names=node_kinds("identifier"),
    declares=node_kinds(
        "parameters lambda_parameters default_parameter.name typed_parameter typed_default_parameter.name assignment.left "
        "augmented_assignment.left for_statement.left for_in_clause.left named_expression.name as_pattern_target"
    ),
    declares_outside=node_kinds("function_definition.name class_definition.name"),
    patterns=node_kinds("pattern_list tuple_pattern list_pattern list_splat_pattern dictionary_splat_pattern"),
    others=node_kinds("attribute.attribute keyword_argument.name"),
    poisons=node_kinds(
        "global_statement nonlocal_statement class_pattern dotted_name aliased_import.alias keyword_pattern splat_pattern "
        "type_parameter"
    ),
    scopes=node_kinds(
        "module function_definition class_definition lambda list_comprehension set_comprehension dictionary_comprehension "
        "generator_expression"
    ),
    functions=node_kinds(
        "module function_definition class_definition lambda list_comprehension set_comprehension dictionary_comprehension "
        "generator_expression"
    ),
    members=node_kinds("class_definition"),
    unseen=node_kinds("class_definition"),
)
_JAVASCRIPT: Final = NameRules(
    names=node_kinds("identifier type_identifier shorthand_property_identifier shorthand_property_identifier_pattern"),
    declares=node_kinds(
        "formal_parameters variable_declarator.name catch_clause.parameter arrow_function.parameter required_parameter.pattern "
        "optional_parameter.pattern function_expression.name for_in_statement.left"
    ),
    declares_outside=node_kinds(
        "function_declaration.name generator_function_declaration.name class_declaration.name enum_declaration.name "
        "abstract_class_declaration.name interface_declaration.name type_alias_declaration.name"
    ),
    patterns=node_kinds(
        "object_pattern array_pattern pair_pattern.value assignment_pattern.left object_assignment_pattern.left rest_pattern"
    ),
    others=node_kinds("property_signature.name namespace_import_name nested_type_identifier.name"),
    poisons=node_kinds(
        "import_specifier.name import_specifier.alias import_clause namespace_import export_specifier.name export_specifier.alias "
        "class.name internal_module.name function_signature.name import_require_clause import_alias with_statement.object decorator type_parameter.name "
        "infer_type mapped_type_clause.name"
    ),
    scopes=node_kinds(
        "program function_declaration function_expression arrow_function method_definition generator_function_declaration "
        "generator_function statement_block for_statement for_in_statement catch_clause switch_body class_static_block"
    ),
    functions=node_kinds(
        "program function_declaration function_expression arrow_function method_definition generator_function_declaration "
        "generator_function class_static_block"
    ),
    bodies=node_kinds("statement_block"),
    hoisted=node_kinds("variable_declaration"),
    shorthands=node_kinds("shorthand_property_identifier shorthand_property_identifier_pattern"),
)
_GO: Final = NameRules(
    names=node_kinds("identifier"),
    declares=node_kinds(
        "parameter_declaration.name variadic_parameter_declaration.name short_var_declaration.left var_spec.name const_spec.name "
        "type_switch_statement.alias range_clause.left"
    ),
    declares_outside=node_kinds("function_declaration.name"),
    patterns=node_kinds("expression_list literal_element"),
    poisons=node_kinds("keyed_element.key receive_statement.left dot"),
    scopes=node_kinds(
        "source_file function_declaration method_declaration func_literal block if_statement for_statement expression_switch_statement "
        "type_switch_statement expression_case type_case default_case communication_case"
    ),
    functions=node_kinds("source_file function_declaration method_declaration func_literal"),
    bodies=node_kinds("block"),
    before=node_kinds("range_clause.right"),
)
_JAVA: Final = NameRules(
    names=node_kinds("identifier type_identifier"),
    declares=node_kinds(
        "formal_parameter.name variable_declarator.name catch_formal_parameter.name enhanced_for_statement.name resource.name "
        "inferred_parameters lambda_expression.parameters class_declaration.name interface_declaration.name enum_declaration.name "
        "record_declaration.name annotation_type_declaration.name"
    ),
    others=node_kinds(
        "method_invocation.name field_access.field method_declaration.name element_value_pair.key scoped_identifier.name "
        "scoped_identifier.scope labeled_statement break_statement continue_statement enum_constant.name method_reference "
        "import_declaration package_declaration scoped_type_identifier"
    ),
    poisons=node_kinds("instanceof_expression.name type_pattern record_pattern_component switch_label type_parameter"),
    scopes=node_kinds(
        "program class_body interface_body enum_body method_declaration constructor_declaration block for_statement "
        "enhanced_for_statement lambda_expression catch_clause try_with_resources_statement switch_block record_declaration"
    ),
    functions=node_kinds(
        "program class_body interface_body enum_body method_declaration constructor_declaration lambda_expression"
    ),
    bodies=node_kinds("block constructor_body"),
    members=node_kinds("class_body interface_body enum_body record_declaration"),
)
_RUST: Final = NameRules(
    names=node_kinds("identifier type_identifier"),
    declares=node_kinds(
        "parameter.pattern let_declaration.pattern closure_parameters for_expression.pattern struct_item.name enum_item.name "
        "type_item.name trait_item.name union_item.name"
    ),
    declares_outside=node_kinds("function_item.name const_item.name static_item.name"),
    patterns=node_kinds("tuple_pattern mut_pattern reference_pattern ref_pattern slice_pattern"),
    others=node_kinds("label enum_variant.name scoped_type_identifier.name"),
    poisons=node_kinds(
        "match_pattern let_condition.pattern captured_pattern tuple_struct_pattern struct_pattern field_pattern or_pattern "
        "scoped_identifier.name use_list use_declaration.argument use_as_clause.alias macro_invocation.macro "
        "macro_definition.name token_binding_pattern scoped_use_list.path type_parameter.name token_tree"
    ),
    scopes=node_kinds(
        "source_file function_item closure_expression block for_expression match_arm if_expression while_expression impl_item mod_item"
    ),
    functions=node_kinds("source_file function_item closure_expression"),
    bodies=node_kinds("block"),
    before=node_kinds("for_expression.value"),
    shorthands=node_kinds("shorthand_field_initializer"),
)

RULES: Final = MappingProxyType(
    {
        "python": _PYTHON,
        "javascript": _JAVASCRIPT,
        "typescript": _JAVASCRIPT,
        "typescriptreact": _JAVASCRIPT,
        "go": _GO,
        "java": _JAVA,
        "rust": _RUST,
    }
)
"""By LSP language id."""
