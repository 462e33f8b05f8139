"""Notifications to receivers outside. `folder`: which receivers there are, by mounted files. `receivers`: how each is
told. `sender`: a bounded queue and a thread for each, so that none waits for another."""

from gpuctl.adapters.notify.folder import Folder
from gpuctl.adapters.notify.receivers import CodeHost, Slack, Webhook, receivers_of
from gpuctl.adapters.notify.sender import Sender

__all__ = ["CodeHost", "Folder", "Sender", "Slack", "Webhook", "receivers_of"]
