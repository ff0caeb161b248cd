// SPDX-License-Identifier: MIT

import EventLoop
import Store

extension GatewayConfiguration {
  /// What is wrong with the database, with its remedy, if no gateway has it open. Its next start would find it.
  public var storeTrouble: String? {
    Store.trouble(store.location, clocks: LinuxClocks()).map { "store.location: \($0). \($0.remedy)" }
  }
}
