// SPDX-License-Identifier: MIT

import Store

/// Decides which lane is next: the first one that has something, and now and then a lower one, so that none stands still. Pure.
struct LaneShares: Equatable {
  /// Of the bytes of higher lanes, what a lane gets beside them while it has something waiting: one in so many.
  static let parts = ByLane(messages: 1, nodes: 8, packets: 16)
  /// A lower lane goes ahead when it may send so many bytes: about an event.
  static let least = 400
  /// What a lane can save up.
  private static let most = 4096

  private var credit = ByLane(all: 0)

  /// `nil`: nothing waits. `bytes`: what the lane may send, if that is less than all.
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
