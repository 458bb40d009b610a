"""A model's configuration: what `auto_complete_config` may add to it, and what models look up in it."""

import json


class ModelConfig:
    """The configuration that `auto_complete_config` completes. What contradicts it raises ValueError."""

    def __init__(self, model_config):
        self._model_config = json.loads(model_config)

    def as_dict(self):
        """The configuration itself, not a copy."""
        return self._model_config

    def set_max_batch_size(self, max_batch_size):
        """Sets the largest batch, unless the configuration allows a larger one."""
        configured = self._model_config.get("max_batch_size", 0)
        if configured > max_batch_size:
            raise ValueError(
                f"configuration specified max_batch_size {configured}, but in {self._function()} "
                f"specified max_batch_size {max_batch_size}"
            )
        self._model_config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self):
        """Chooses the dynamic batcher, unless the configuration has another scheduler."""
        for scheduler in ("sequence_batching", "ensemble_scheduling"):
            if scheduler in self._model_config:
                raise ValueError(
                    f"Configuration specified scheduling_choice as '{scheduler}', but {self._function()} "
                    "tries to set scheduling_choice as 'dynamic_batching'"
                )
        self._model_config.setdefault("dynamic_batching", {})

    def add_input(self, input):
        """Adds an input of these properties: name, data_type, dims; optional is optional."""
        self._add("input", input, ("name", "data_type", "dims"), ("optional",))

    def add_output(self, output):
        """Adds an output of these properties: name, data_type, dims."""
        self._add("output", output, ("name", "data_type", "dims"), ())

    def set_model_transaction_policy(self, transaction_policy_dict):
        """Says whether the model is decoupled, unless the configuration says the opposite."""
        if any(key != "decoupled" for key in transaction_policy_dict):
            raise ValueError(
                f"model transaction property in {self._function()} contains property other than 'decoupled'."
            )
        policy = self._model_config.setdefault("model_transaction_policy", {})
        for decoupled in transaction_policy_dict.values():
            if policy.get("decoupled", decoupled) != decoupled:
                raise ValueError(
                    f"trying to change decoupled property in auto-complete-config for model '{self._name()}', "
                    f"which is already set to '{policy['decoupled']}'."
                )
            policy["decoupled"] = decoupled

    def _name(self):
        return self._model_config.get("name", "")

    def _function(self):
        return f"auto-complete-config function for model '{self._name()}'"

    def _add(self, kind, added, required, optional):
        self._check_properties(kind, added, required, optional)
        tensors = self._model_config.setdefault(kind, [])
        same = next((tensor for tensor in tensors if tensor.get("name") == added["name"]), None)
        if same is None:
            tensors.append(added)
        else:
            self._check_agreement(kind, same, added)
            same.update(added)

    def _check_properties(self, kind, added, required, optional):
        whose = f"{kind} '{added['name']}'" if "name" in added else kind
        if any(key not in required + optional for key in added):
            *first, last = (f"'{name}'" for name in required + optional)
            raise ValueError(
                f"{whose} in {self._function()} contains property other than {', '.join(first)} and {last}."
            )
        for name in required:
            if name not in added:
                raise ValueError(f"{whose} in {self._function()} is missing '{name}' property.")

    def _check_agreement(self, kind, configured, added):
        datatype = configured.get("data_type", "TYPE_INVALID")
        if datatype not in ("TYPE_INVALID", added["data_type"]):
            raise ValueError(
                f"unable to load model '{self._name()}', configuration expects datatype {datatype} "
                f"for {kind} '{added['name']}', model provides {added['data_type']}"
            )
        for name in ("dims", "optional"):
            # Empty dims are dims that nobody has written.
            known = name in configured and (name != "dims" or configured[name])
            if known and name in added and configured[name] != added[name]:
                raise ValueError(
                    f"model '{self._name()}', tensor '{added['name']}': the model expects {name} {added[name]} "
                    f"but the model configuration specifies {name} {configured[name]}"
                )


def get_input_config_by_name(model_config, name):
    """The properties of the input of that name, or None."""
    return _tensor_config(model_config, "input", name)


def get_output_config_by_name(model_config, name):
    """The properties of the output of that name, or None."""
    return _tensor_config(model_config, "output", name)


def _tensor_config(model_config, kind, name):
    return next((tensor for tensor in model_config.get(kind, ()) if tensor["name"] == name), None)


def using_decoupled_model_transaction_policy(model_config):
    """Whether the configuration says that the model is decoupled."""
    return model_config.get("model_transaction_policy", {}).get("decoupled", False)
