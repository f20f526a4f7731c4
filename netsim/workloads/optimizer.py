"""The optimizer's kernel: passes over weights, gradients and states in memory."""

from netsim.workloads.setting import Setting

FP32 = 4
# fp32 numbers a parameter that are read and written: master copy, momentum, variance.
STATES = {"adam": 3, "sgd-momentum": 2, "sgd": 1}


def state_bytes(optimizer: str) -> int:
    """Bytes of optimizer states a parameter, the fp32 copy of the weights among them."""
    return FP32 * STATES[optimizer]


def optimizer_seconds(setting: Setting, parameters: int) -> float:
    """Updating so many parameters: states read and written, gradients read, weights written."""
    each = 2 * state_bytes(setting.optimizer) + setting.gradient_element + setting.element
    return setting.roofline.stream_seconds(float(each) * parameters)
