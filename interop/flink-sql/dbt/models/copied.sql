{{ config(materialized='table', connector_properties={'connector': 'blackhole'}) }}
select page, ms from {{ ref('slow') }}
