// Where launchers write down the host of rank 0. Pure; the work is bounded by the length of the text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dsc {

// All give nothing if the text is not of the expected form, or the name is longer than a host's can be.

// "node[01-03,7]-ib,gpu05" -> "node01-ib": the first host of a list in Slurm's compressed form.
std::optional<std::string> first_slurm_host(std::string_view list);

// The first of "hosts" in the JSON that SageMaker puts into SM_TRAINING_ENV.
std::optional<std::string> first_sagemaker_host(std::string_view json);

// "10.0.0.4:6000" -> "10.0.0.4"
std::optional<std::string> host_before_colon(std::string_view text);

// A host's name or address as it is.
std::optional<std::string> plain_host(std::string_view text);

}  // namespace dsc
