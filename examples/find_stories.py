"""Group headlines into stories, then find near-duplicates among them.

python examples/find_stories.py
"""

from apps.clustering import ClusteringConfig, cluster, find_duplicates

titles = [
    "누리호 발사대 기립",
    "누리호, 발사대에 기립",
    "한국형 발사체 누리호 발사대 기립",
    "한은, 기준금리 3.5% 동결",
    "한은 기준금리, 3.5% 동결",
    "금통위, 기준금리 3.5%로 또 동결",
    "기준금리 동결…3.5% 유지",
    "첫눈 내린 고갯길",
]
clusters = cluster(titles, ClusteringConfig(min_size=3))
for story in clusters.stories:
    print(story.headline, [titles[member.index] for member in story.members])
print("no story:", [titles[index] for index in clusters.noise])
for group in find_duplicates(titles):
    print("near-duplicates:", [titles[index] for index in group.members])
