// SPDX-License-Identifier: MIT

/// What the gateway's air time is used for.
public enum AirtimePurpose: String, CaseIterable, Sendable {
  /// First attempts of messages from here: of people, and of programs at the control socket.
  case message
  /// Further attempts of any message.
  case retry
  /// First attempts of messages of servers: from other gateways, and by commands.
  case relayed
  /// Answers of hooks.
  case hook
  /// Questions to nodes that somebody asks.
  case request
  case login
  /// Questions by the clock, and for paths.
  case poll
  case advert
  /// Programs that share the radio.
  case client
  /// Not ours: packets that the radio heard.
  case heard
}
