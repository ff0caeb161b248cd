// SPDX-License-Identifier: MIT

import Store

/// Chooses the next lane: the highest one with events, and now and then a lower one, so that none stands still. Pure.
struct LaneShares: Equatable {
  /// For so many bytes of the highest lane with events, a waiting lane gets one.
  static let parts = ByLane(messages: 1, nodes: 8, packets: 16)
  /// A lower lane goes ahead once it may send this many bytes, about an event.
  static let least = 400
  /// The most bytes that a lane can save up, or owe.
  private static let most = 4096

  private var credit = ByLane(all: 0)

  /// `nil`: nothing waits. `bytes`: a lower lane's limit; `nil`: no limit.
  func next(_ waiting: ByLane<Bool>) -> (lane: Lane, bytes: Int?)? {
    guard let first = Lane.allCases.first(where: { waiting[$0] }) else { return nil }
    for lane in Lane.allCases.reversed() where lane != first && waiting[lane] && credit[lane] >= Self.least {
      return (lane, credit[lane])
    }
    return (first, nil)
  }

  mutating func sent(_ bytes: Int, in lane: Lane, waiting: ByLane<Bool>) {
    let first = Lane.allCases.first { waiting[$0] } ?? lane
    for other in Lane.allCases {
      if !waiting[other] {
        credit[other] = 0
      } else if other == lane {
        credit[other] = lane == first ? 0 : max(credit[other] - bytes, -Self.most)
      } else if lane == first {
        credit[other] = min(credit[other] + bytes / Self.parts[other], Self.most)
      }
    }
  }
}
